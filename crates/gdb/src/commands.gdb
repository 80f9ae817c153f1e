# Short names for the commands of the recording. Those that move time end with a stepi, at which the server takes no
# step but shows gdb where it is. What the program has loaded by then gdb would learn at a breakpoint that was passed over, so
# it is told to look; and it compares watched values with what it saw last, so it is made to look again.
define clew-look-again
python [setattr(b, 'enabled', True) for b in gdb.breakpoints() if b.type in (gdb.BP_WATCHPOINT, gdb.BP_HARDWARE_WATCHPOINT) and b.enabled and not setattr(b, 'enabled', False)]
end
document clew-look-again
Read the values of watched expressions anew.
end
define clew-arrive
python gdb.parameter('auto-solib-add') and gdb.execute('sharedlibrary')
stepi
clew-look-again
end
document clew-arrive
Show where the recording is after it was moved.
end
define when
monitor when
end
document when
Show the current moment of the recording.
end
define seek
monitor seek $arg0
clew-arrive
end
document seek
Go to a moment of the recording: seek MOMENT, seek start, seek end, seek FILE:LINE#N.
end
define instance
monitor instance $arg0
end
document instance
Say which execution of a line this is, and how many there are: instance FILE:LINE.
end
define rollback
monitor rollback $arg0
clew-arrive
end
document rollback
Go back to a checkpoint: rollback N.
end
