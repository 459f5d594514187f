//! A hint to the processor: what will be used in a moment is to come into its caches while it still does something
//! else. With hundreds of calls a call's memory is in no near cache when its turn comes; the hint changes nothing but time.

/// Asks for a value; not for what it points to.
pub(crate) fn fetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes that come at once.
        const LINE: usize = 64;
        let first = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE) {
            #[expect(unsafe_code, reason = "an instruction of the processor")]
            // SAFETY: a hint about any address whatever is allowed, and changes nothing that a program sees.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
