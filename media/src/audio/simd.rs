//! How the loops of this folder get vector instructions without being written in them.

/// Compiles a function twice, for any processor and for AVX2, and picks by the processor at run time.
/// The body is plain Rust whose loops the compiler makes vectors of; integers and separate float
/// operations give the same bits either way.
macro_rules! compiled_twice {
    (
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block
    ) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn portable($($arg: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) $(-> $out)? {
                    portable($($arg),*)
                }

                if is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "calling a function compiled for AVX2")]
                    // SAFETY: `avx2` is safe code whose only demand is a processor with AVX2, and
                    // that was asked for on the line above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}

pub(super) use compiled_twice;
