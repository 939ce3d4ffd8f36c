//! How a static program resolves host names and users.
//!
//! glibc loads the services that `/etc/nsswitch.conf` names (`resolve`, `sss`, …) as shared libraries, also into a
//! static program. They were built for the machine's own libc, which need not be ours: the program would crash.

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
#[expect(unsafe_code, reason = "no crate here offers it")]
mod glibc {
    use std::ffi::{CStr, c_char, c_int};

    // SAFETY: declared as in nss.h.
    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    pub(super) fn configure(database: &'static CStr, services: &'static CStr) {
        // SAFETY: both texts end in NUL and live for ever. glibc takes its own lock.
        // It refuses only a database or a service line that it cannot read; these are constants.
        unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}

/// Has names looked up in `/etc/hosts` and by DNS, and users in `/etc/passwd`, by what is part of this program, whatever
/// `/etc/nsswitch.conf` says. Does nothing in a program that is not static. To be called before the first name is resolved.
pub fn use_built_in_resolver() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        glibc::configure(c"hosts", c"files dns");
        glibc::configure(c"passwd", c"files");
    }
}
