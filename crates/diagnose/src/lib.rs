//! Methods that find causes: oracles, verdicts, switching.
