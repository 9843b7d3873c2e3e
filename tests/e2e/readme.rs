//! The key tables in the README files are the key table itself; deviations stand in one table.

use pvisor_tui::action::{Entry, TABLE};

fn rows(text: &str) -> Vec<String> {
    let (_, after) = text.split_once("<!-- keys").expect("the table's beginning");
    let (table, _) = after.split_once("<!-- /keys -->").expect("the table's end");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(str::to_owned).collect()
}

fn columns(entry: &Entry) -> String {
    let keys: Vec<String> = entry.keys.iter().map(|k| format!("`{k}`")).collect();
    format!("| {} | `{}` | {} |", keys.join(", "), entry.id, entry.help)
}

#[test]
fn the_whole_list_is_the_table() {
    let mut group = None;
    let expected = TABLE.iter().map(|entry| {
        let title = if group == Some(entry.group) {
            ""
        } else {
            entry.group.title()
        };
        group = Some(entry.group);
        let first = if title.is_empty() {
            "|".to_owned()
        } else {
            format!("| {title}")
        };
        format!("{first} {}", columns(entry))
    });
    let expected: Vec<String> = expected.collect();
    let shown = rows(include_str!("../../ui/README.md"));
    assert_eq!(
        shown.join("\n"),
        expected.join("\n"),
        "ui/README.md, in full"
    );
}

#[test]
fn the_keys_to_begin_with_are_rows_of_the_table() {
    let all: Vec<String> = TABLE.iter().map(columns).collect();
    for row in rows(include_str!("../../README.md")) {
        assert!(
            all.contains(&row),
            "README.md has a row that the key table has not: {row}"
        );
    }
}

#[test]
fn deviations_stand_in_one_table_and_name_their_twin() {
    let readme = include_str!("../../README.md");
    let (_, after) = readme.split_once("\n## Deviations\n").expect("the section");
    let (section, _) = after.split_once("\n## ").expect("its end");
    assert!(section.contains("`tests/oracle/deviations.rs`"));
    let rows: Vec<&str> = section.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(rows[0], "| what | overlayfs | fuse | why |");
    assert_eq!(
        rows.iter().filter(|r| r.starts_with("|---")).count(),
        1,
        "one table"
    );
    for row in rows {
        let cells = row.matches('|').count() - 1;
        assert_eq!(cells, 4, "{row}");
    }
}
