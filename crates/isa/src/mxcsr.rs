//! Which instructions depend on MXCSR (rounding, denormals) and set its sticky exception flags.
//!
//! Guarantee: complete for SSE to AVX-512 (the test `cpu` changes MXCSR under every instruction). For FMA4, XOP and the
//! Xeon Phi instructions, which that test's processor lacks, the list follows the manuals.

use iced_x86::{Code, Instruction, Mnemonic, RoundingControl};

use crate::effects::Access;

/// How `instruction` uses MXCSR.
pub(crate) fn mxcsr(instruction: &Instruction) -> Access {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Ldmxcsr | M::Vldmxcsr | M::Fxrstor | M::Fxrstor64 => Access::WRITE,
        M::Stmxcsr | M::Vstmxcsr | M::Fxsave | M::Fxsave64 => Access::READ,
        // Only "denormals are zeros" matters, and no exception is reported.
        M::Vfpclasspd | M::Vfpclassps | M::Vfpclasssd | M::Vfpclassss => Access::READ,
        M::Vrcp14pd | M::Vrcp14ps | M::Vrcp14sd | M::Vrcp14ss => Access::READ,
        M::Vrsqrt14pd | M::Vrsqrt14ps | M::Vrsqrt14sd | M::Vrsqrt14ss => Access::READ,
        // iced has one mnemonic for the string compare `cmpsd` and the comparison of doubles.
        mnemonic if instruction.is_string_instruction() || !is_arithmetic(mnemonic) => Access::NONE,
        _ if is_exact(instruction.code()) => Access::NONE,
        // Embedded rounding and {sae} report no exceptions; they still flush denormals as MXCSR says.
        _ if instruction.rounding_control() != RoundingControl::None || instruction.suppress_all_exceptions() => {
            Access::READ
        }
        _ => Access::UPDATE,
    }
}

/// Every 32-bit integer is a double: these conversions neither round nor raise.
fn is_exact(code: Code) -> bool {
    matches!(
        code,
        Code::Cvtsi2sd_xmm_rm32
            | Code::VEX_Vcvtsi2sd_xmm_xmm_rm32
            | Code::EVEX_Vcvtsi2sd_xmm_xmm_rm32_er
            | Code::EVEX_Vcvtusi2sd_xmm_xmm_rm32_er
    )
}

/// Floating-point arithmetic, comparison and conversion that rounds or raises exceptions.
#[rustfmt::skip]
fn is_arithmetic(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        // SSE
        Addpd | Addps | Addsd | Addss | Addsubpd | Addsubps | Cmppd | Cmpps | Cmpsd | Cmpss | Comisd |
        Comiss | Cvtdq2ps | Cvtpd2dq | Cvtpd2pi | Cvtpd2ps | Cvtpi2ps | Cvtps2dq | Cvtps2pd | Cvtps2pi |
        Cvtsd2si | Cvtsd2ss | Cvtsi2sd | Cvtsi2ss | Cvtss2sd | Cvtss2si | Cvttpd2dq | Cvttpd2pi |
        Cvttps2dq | Cvttps2pi | Cvttsd2si | Cvttss2si | Divpd | Divps | Divsd | Divss | Dppd | Dpps |
        Haddpd | Haddps | Hsubpd | Hsubps | Maxpd | Maxps | Maxsd | Maxss | Minpd | Minps | Minsd | Minss |
        Mulpd | Mulps | Mulsd | Mulss | Roundpd | Roundps | Roundsd | Roundss | Sqrtpd | Sqrtps | Sqrtsd |
        Sqrtss | Subpd | Subps | Subsd | Subss | Ucomisd | Ucomiss
        // AVX and AVX-512
        | Vaddpd | Vaddph | Vaddps | Vaddsd | Vaddsh | Vaddss | Vaddsubpd | Vaddsubps | Vcmppd | Vcmpph |
        Vcmpps | Vcmpsd | Vcmpsh | Vcmpss | Vcomisd | Vcomish | Vcomiss | Vcvtdq2ph | Vcvtdq2ps |
        Vcvtpd2dq | Vcvtpd2ph | Vcvtpd2ps | Vcvtpd2qq | Vcvtpd2udq | Vcvtpd2uqq | Vcvtph2dq | Vcvtph2pd |
        Vcvtph2ps | Vcvtph2psx | Vcvtph2qq | Vcvtph2udq | Vcvtph2uqq | Vcvtph2uw | Vcvtph2w | Vcvtps2dq |
        Vcvtps2pd | Vcvtps2ph | Vcvtps2phx | Vcvtps2qq | Vcvtps2udq | Vcvtps2uqq | Vcvtqq2pd | Vcvtqq2ph |
        Vcvtqq2ps | Vcvtsd2sh | Vcvtsd2si | Vcvtsd2ss | Vcvtsd2usi | Vcvtsh2sd | Vcvtsh2si | Vcvtsh2ss |
        Vcvtsh2usi | Vcvtsi2sd | Vcvtsi2sh | Vcvtsi2ss | Vcvtss2sd | Vcvtss2sh | Vcvtss2si | Vcvtss2usi |
        Vcvttpd2dq | Vcvttpd2qq | Vcvttpd2udq | Vcvttpd2uqq | Vcvttph2dq | Vcvttph2qq | Vcvttph2udq |
        Vcvttph2uqq | Vcvttph2uw | Vcvttph2w | Vcvttps2dq | Vcvttps2qq | Vcvttps2udq | Vcvttps2uqq |
        Vcvttsd2si | Vcvttsd2usi | Vcvttsh2si | Vcvttsh2usi | Vcvttss2si | Vcvttss2usi | Vcvtudq2ph |
        Vcvtudq2ps | Vcvtuqq2pd | Vcvtuqq2ph | Vcvtuqq2ps | Vcvtusi2sd | Vcvtusi2sh | Vcvtusi2ss |
        Vcvtuw2ph | Vcvtw2ph | Vdivpd | Vdivph | Vdivps | Vdivsd | Vdivsh | Vdivss | Vdppd | Vdpps |
        Vfixupimmpd | Vfixupimmps | Vfixupimmsd | Vfixupimmss | Vgetexppd | Vgetexpph | Vgetexpps |
        Vgetexpsd | Vgetexpsh | Vgetexpss | Vgetmantpd | Vgetmantph | Vgetmantps | Vgetmantsd |
        Vgetmantsh | Vgetmantss | Vhaddpd | Vhaddps | Vhsubpd | Vhsubps | Vmaxpd | Vmaxph | Vmaxps |
        Vmaxsd | Vmaxsh | Vmaxss | Vminpd | Vminph | Vminps | Vminsd | Vminsh | Vminss | Vmulpd | Vmulph |
        Vmulps | Vmulsd | Vmulsh | Vmulss | Vrangepd | Vrangeps | Vrangesd | Vrangess | Vreducepd |
        Vreduceph | Vreduceps | Vreducesd | Vreducesh | Vreducess | Vrndscalepd | Vrndscaleph |
        Vrndscaleps | Vrndscalesd | Vrndscalesh | Vrndscaless | Vroundpd | Vroundps | Vroundsd | Vroundss |
        Vscalefpd | Vscalefph | Vscalefps | Vscalefsd | Vscalefsh | Vscalefss | Vsqrtpd | Vsqrtph |
        Vsqrtps | Vsqrtsd | Vsqrtsh | Vsqrtss | Vsubpd | Vsubph | Vsubps | Vsubsd | Vsubsh | Vsubss |
        Vucomisd | Vucomish | Vucomiss
        // Fused multiply-add
        | Vfcmaddcph | Vfcmaddcsh | Vfcmulcph | Vfcmulcsh | Vfmadd132pd | Vfmadd132ph | Vfmadd132ps |
        Vfmadd132sd | Vfmadd132sh | Vfmadd132ss | Vfmadd213pd | Vfmadd213ph | Vfmadd213ps | Vfmadd213sd |
        Vfmadd213sh | Vfmadd213ss | Vfmadd231pd | Vfmadd231ph | Vfmadd231ps | Vfmadd231sd | Vfmadd231sh |
        Vfmadd231ss | Vfmaddcph | Vfmaddcsh | Vfmaddsub132pd | Vfmaddsub132ph | Vfmaddsub132ps |
        Vfmaddsub213pd | Vfmaddsub213ph | Vfmaddsub213ps | Vfmaddsub231pd | Vfmaddsub231ph |
        Vfmaddsub231ps | Vfmsub132pd | Vfmsub132ph | Vfmsub132ps | Vfmsub132sd | Vfmsub132sh |
        Vfmsub132ss | Vfmsub213pd | Vfmsub213ph | Vfmsub213ps | Vfmsub213sd | Vfmsub213sh | Vfmsub213ss |
        Vfmsub231pd | Vfmsub231ph | Vfmsub231ps | Vfmsub231sd | Vfmsub231sh | Vfmsub231ss |
        Vfmsubadd132pd | Vfmsubadd132ph | Vfmsubadd132ps | Vfmsubadd213pd | Vfmsubadd213ph |
        Vfmsubadd213ps | Vfmsubadd231pd | Vfmsubadd231ph | Vfmsubadd231ps | Vfmulcph | Vfmulcsh |
        Vfnmadd132pd | Vfnmadd132ph | Vfnmadd132ps | Vfnmadd132sd | Vfnmadd132sh | Vfnmadd132ss |
        Vfnmadd213pd | Vfnmadd213ph | Vfnmadd213ps | Vfnmadd213sd | Vfnmadd213sh | Vfnmadd213ss |
        Vfnmadd231pd | Vfnmadd231ph | Vfnmadd231ps | Vfnmadd231sd | Vfnmadd231sh | Vfnmadd231ss |
        Vfnmsub132pd | Vfnmsub132ph | Vfnmsub132ps | Vfnmsub132sd | Vfnmsub132sh | Vfnmsub132ss |
        Vfnmsub213pd | Vfnmsub213ph | Vfnmsub213ps | Vfnmsub213sd | Vfnmsub213sh | Vfnmsub213ss |
        Vfnmsub231pd | Vfnmsub231ph | Vfnmsub231ps | Vfnmsub231sd | Vfnmsub231sh | Vfnmsub231ss
        // FMA4, XOP and Xeon Phi
        | V4fmaddps | V4fmaddss | V4fnmaddps | V4fnmaddss | Vexp2pd | Vexp2ps | Vfmaddpd | Vfmaddps |
        Vfmaddsd | Vfmaddss | Vfmaddsubpd | Vfmaddsubps | Vfmsubaddpd | Vfmsubaddps | Vfmsubpd | Vfmsubps |
        Vfmsubsd | Vfmsubss | Vfnmaddpd | Vfnmaddps | Vfnmaddsd | Vfnmaddss | Vfnmsubpd | Vfnmsubps |
        Vfnmsubsd | Vfnmsubss | Vfrczpd | Vfrczps | Vfrczsd | Vfrczss | Vrcp28pd | Vrcp28ps | Vrcp28sd |
        Vrcp28ss | Vrsqrt28pd | Vrsqrt28ps | Vrsqrt28sd | Vrsqrt28ss
    )
}
