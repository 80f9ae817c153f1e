//! Can this machine execute what a recorded program executed?
//!
//! Recordings name the first instruction of each instruction set extension that was met. Baseline x86-64 is taken for
//! granted, and so are extensions that the standard library cannot ask about.

use iced_x86::{CpuidFeature, Decoder, DecoderOptions};
use recording::Unit;

/// The first extension that a unit needs and this machine does not have, with the instruction that needs it.
pub fn missing_feature(unit: &Unit) -> Option<String> {
    unit.features.iter().find_map(|f| {
        let feature = CpuidFeature::try_from(f.feature as usize).ok()?;
        if is_there(feature) {
            return None;
        }
        let i = Decoder::with_ip(64, &f.bytes, f.pc, DecoderOptions::NONE).decode();
        let name = format!("{:?}", i.mnemonic()).to_lowercase();
        Some(format!(
            "this CPU does not have {feature:?}, which the recorded program needs for the instruction {name} at {:#x}; \
             replay it on a machine that has it, or record it with --cpu v2",
            f.pc
        ))
    })
}

/// Does this machine have the extension?
fn is_there(feature: CpuidFeature) -> bool {
    macro_rules! table {
        ($($name:ident $text:tt),* $(,)?) => {
            match feature {
                $(CpuidFeature::$name => std::arch::is_x86_feature_detected!($text),)*
                _ => true,
            }
        };
    }
    table!(
        SSE3 "sse3", SSSE3 "ssse3", SSE4_1 "sse4.1", SSE4_2 "sse4.2", SSE4A "sse4a", POPCNT "popcnt", LZCNT "lzcnt",
        MOVBE "movbe", BMI1 "bmi1", BMI2 "bmi2", ADX "adx", AES "aes", PCLMULQDQ "pclmulqdq", SHA "sha", F16C "f16c",
        FMA "fma", AVX "avx", AVX2 "avx2", VAES "vaes", VPCLMULQDQ "vpclmulqdq", GFNI "gfni", RDRAND "rdrand",
        RDSEED "rdseed", AVX512F "avx512f", AVX512BW "avx512bw", AVX512CD "avx512cd", AVX512DQ "avx512dq",
        AVX512VL "avx512vl", AVX512_VBMI "avx512vbmi", AVX512_VBMI2 "avx512vbmi2", AVX512_VNNI "avx512vnni",
        AVX512_BITALG "avx512bitalg", AVX512_IFMA "avx512ifma", AVX512_VPOPCNTDQ "avx512vpopcntdq",
        CMPXCHG16B "cmpxchg16b",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::log::{FeatureRecord, Start};
    use recording::UnitName;

    fn unit(feature: CpuidFeature) -> Unit {
        // sha1msg1 xmm0, xmm1
        let bytes = vec![0x0f, 0x38, 0xc9, 0xc1];
        Unit {
            name: UnitName::new(1, 0),
            start: Start::forked(String::new(), 0, 1, 1),
            records: 0,
            bytes: 0,
            threads: 1,
            end: None,
            inexact: Vec::new(),
            unrecorded: Vec::new(),
            features: vec![FeatureRecord { feature: feature as u32, pc: 0x1234, bytes }],
            files: Vec::new(),
            damage: None,
        }
    }

    #[test]
    fn a_missing_extension_is_named_with_its_instruction() {
        // An extension that no x86-64 machine with this test suite has.
        match (std::arch::is_x86_feature_detected!("sse4a"), missing_feature(&unit(CpuidFeature::SSE4A))) {
            (true, answer) => assert_eq!(answer, None),
            (false, answer) => {
                let text = answer.expect("it is missing");
                assert!(text.contains("SSE4A") && text.contains("sha1msg1 at 0x1234"), "{text}");
            }
        }
        assert_eq!(missing_feature(&unit(CpuidFeature::SSE2)), None);
    }
}
