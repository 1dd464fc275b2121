//! Tables for people: columns as wide as their widest cell, numbers to the right.

/// Renders a head and rows; a column is set to the right when all its body cells start with a digit.
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let mut text = String::new();
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let body = rows.iter().map(|row| cell(row, column).chars().count());
            body.chain([title.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let right: Vec<bool> = (0..head.len())
        .map(|column| {
            !rows.is_empty()
                && rows.iter().all(|row| {
                    let cell = cell(row, column);
                    cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit())
                })
        })
        .collect();
    let head_cells: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    for row in [&head_cells, &rule].into_iter().chain(rows) {
        let mut line = String::new();
        for (column, (width, right)) in widths.iter().zip(&right).enumerate() {
            let cell = cell(row, column);
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let padded = if *right { padding + &cell } else { cell + &padding };
            line.push_str(&padded);
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_numbers_stand_right() {
        let rows = vec![
            vec!["fmt".to_owned(), "1".to_owned()],
            vec!["build".to_owned(), "120".to_owned()],
        ];
        let text = render(&["stage", "passed"], &rows);
        assert_eq!(text, "stage  passed\n-----  ------\nfmt         1\nbuild     120\n");
    }

    #[test]
    fn missing_cells_are_blank() {
        let text = render(&["a", "b"], &[vec!["x".to_owned()]]);
        assert_eq!(text, "a  b\n-  -\nx\n");
    }
}
