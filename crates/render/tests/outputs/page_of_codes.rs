//! The page of all codes in the docs.

#[test]
fn the_page_of_all_codes_is_up_to_date() {
    let page = include_str!("../../../../docs/findings.md");
    let is_same = page == render::explain::page(doctor::checks::ALL);
    assert!(is_same, "docs/findings.md does not fit the checks; cargo xtask accept writes it");
}
