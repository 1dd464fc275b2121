//! The lines in which a bench tells a figure: `ratio: <name> = <value>`, with ` limit <value>` where the design sets the
//! most that it may be, or ` least <value>` where it sets the least.

/// The head of the table of figures.
pub(crate) const HEAD: [&str; 4] = ["figure", "value", "target", ""];

/// What every such line begins with.
const MARK: &str = "ratio: ";

/// What the design asks of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    Most(f64),
    Least(f64),
}

/// One figure that a bench told.
#[derive(Debug, PartialEq)]
pub(crate) struct Ratio {
    name: String,
    value: f64,
    target: Option<Target>,
}

/// The figures of a bench's output.
pub(crate) fn read(text: &str) -> Vec<Ratio> {
    text.lines().filter_map(|line| ratio(line.trim())).collect()
}

/// The output without them, and without blank lines at its ends.
pub(crate) fn without(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().starts_with(MARK)).collect();
    lines.join("\n").trim().to_owned()
}

fn ratio(line: &str) -> Option<Ratio> {
    let (name, rest) = line.strip_prefix(MARK)?.split_once(" = ")?;
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let target = match words.next() {
        Some("limit") => Some(Target::Most(words.next()?.parse().ok()?)),
        Some("least") => Some(Target::Least(words.next()?.parse().ok()?)),
        _ => None,
    };
    Some(Ratio { name: name.to_owned(), value, target })
}

impl Ratio {
    /// Its line in the table, with by how much the target is missed.
    pub(crate) fn row(&self) -> Vec<String> {
        let (target, missed) = match self.target {
            Some(Target::Most(most)) => (format!("≤ {most}"), self.value / most - 1.0),
            Some(Target::Least(least)) => (format!("≥ {least}"), 1.0 - self.value / least),
            None => (String::new(), 0.0),
        };
        let word = if missed > 0.0 {
            format!("MISSED by {:.0} %", (missed * 100.0).ceil())
        } else {
            String::new()
        };
        vec![self.name.clone(), figure(self.value), target, word]
    }
}

/// Three digits after the point for what is small, fewer for what is large.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.3}"),
        10.0..1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "bench\nratio: commits = 2.1 limit 2.3\n  ratio: flat = 1.25\nratio: none = x\nratio: 3\n\
        ratio: events = 150000 least 200000\n";

    #[test]
    fn ratios_are_read_from_the_output() {
        let ratio = |name: &str, value, target| Ratio { name: name.to_owned(), value, target };
        assert_eq!(
            read(TEXT),
            [
                ratio("commits", 2.1, Some(Target::Most(2.3))),
                ratio("flat", 1.25, None),
                ratio("events", 150_000.0, Some(Target::Least(200_000.0))),
            ]
        );
    }

    #[test]
    fn the_rest_of_the_output_is_kept() {
        assert_eq!(without("\n## a\n\nratio: b = 1\n  c\n\n"), "## a\n\n  c");
    }

    #[test]
    fn a_missed_target_is_told_with_its_distance() {
        let rows: Vec<Vec<String>> = read(TEXT).iter().map(Ratio::row).collect();
        assert_eq!(rows[0], ["commits", "2.100", "≤ 2.3", ""]);
        assert_eq!(rows[2], ["events", "150000", "≥ 200000", "MISSED by 25 %"]);
        let over = Ratio { name: "a".to_owned(), value: 2.4, target: Some(Target::Most(2.3)) };
        assert_eq!(over.row(), ["a", "2.400", "≤ 2.3", "MISSED by 5 %"]);
        let at = Ratio { value: 2.3, ..over };
        assert_eq!(at.row(), ["a", "2.300", "≤ 2.3", ""]);
    }
}
