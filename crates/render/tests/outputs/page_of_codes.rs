//! The page of all codes in the docs.

#[test]
fn the_page_of_all_codes_is_up_to_date() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/findings.md"))
        .unwrap_or_default();
    assert_eq!(page, render::explain::page(doctor::checks::ALL), "cargo xtask docs --accept writes it anew");
}
