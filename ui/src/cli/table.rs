//! Columns of text on standard output. Owns their alignment by display width; every cell is
//! sanitised by whoever makes it.

use unicode_width::UnicodeWidthStr;

/// Rows with their cells aligned, two spaces between columns, nothing behind the last cell.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.width() + 2));
        }
        out.push_str(line.trim_end_matches(' '));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_width() {
        let rows = [vec!["a", "b", "c"], vec!["日本", "", "d"], vec!["x"]];
        let rows = rows.map(|row| row.into_iter().map(String::from).collect::<Vec<_>>());
        assert_eq!(aligned(&rows), "a     b  c\n日本     d\nx\n");
    }
}
