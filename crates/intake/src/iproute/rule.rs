//! `ip rule`: `5270: from all lookup 52`.

use evidence::kernel::PolicyRule;

/// A rule, if the line is one. Those that lead to no table have an empty name for it.
pub(super) fn read(text: &str) -> Option<PolicyRule> {
    let (priority, rule) = text.trim().split_once(':')?;
    let priority = priority.parse().ok()?;
    let words: Vec<&str> = rule.split_whitespace().collect();
    if !matches!(words.first(), Some(&"from" | &"not")) {
        return None;
    }
    let table = words.iter().skip_while(|word| !matches!(**word, "lookup" | "table")).nth(1);
    let is_for_all = matches!(words.as_slice(), ["from", "all", "lookup" | "table", _]);
    Some(PolicyRule { priority, table: table.copied().unwrap_or_default().to_owned(), is_for_all })
}

/// The table that a command asks for, if it is another than the main one.
pub(super) fn asked_table(command: &str) -> Option<&str> {
    let is_route = command.split_whitespace().any(|word| matches!(word, "r" | "ro" | "route"));
    let table = command.split_whitespace().skip_while(|word| *word != "table").nth(1)?;
    (is_route && !matches!(table, "main" | "all" | "254")).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_tables() {
        let rule = |text: &str| read(text).map(|rule| (rule.priority, rule.table, rule.is_for_all));
        assert_eq!(rule("5270:\tfrom all lookup 52"), Some((5270, "52".to_owned(), true)));
        assert_eq!(
            rule("5210:\tfrom all fwmark 0x80000/0xff0000 lookup main"),
            Some((5210, "main".to_owned(), false))
        );
        assert_eq!(rule("10:\tfrom all fwmark 0x8 unreachable"), Some((10, String::new(), false)));
        assert_eq!((rule("5: eth0: <UP>"), rule("a:\tfrom all")), (None, None));
        assert_eq!(asked_table("ip route show table 52"), Some("52"));
        assert_eq!((asked_table("ip route show table main"), asked_table("ip rule")), (None, None));
    }
}
