//! The raw forms are unsafe, because the compiler cannot check a pointer.

fn main() {
    bulkmem::Options::new().clear_raw(std::ptr::null_mut(), 1);
    bulkmem::Options::new().copy_raw(std::ptr::null_mut(), std::ptr::null(), 1);
}
