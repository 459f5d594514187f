//! Tells cargo what, besides the sources, the binary is made of.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
