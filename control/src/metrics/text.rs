//! The text format of Prometheus (exposition format 0.0.4).

use super::table::{Family, Kind};
use super::values::Histogram;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text that grows family by family.
#[derive(Debug, Default)]
pub struct Text(String);

/// The samples of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    family: &'static Family,
}

impl Text {
    /// Begins a family. All its samples come before the next one's.
    pub fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let Family {
            name, kind, help, ..
        } = family;
        let kind: &Kind = kind;
        self.0 += &format!(
            "# HELP {name} {}\n# TYPE {name} {}\n",
            escaped(help, false),
            kind.name()
        );
        Samples {
            text: &mut self.0,
            family,
        }
    }

    /// A family with one sample and no labels.
    pub fn one(&mut self, family: &'static Family, value: f64) {
        self.family(family).value(&[], value);
    }

    /// A family whose one sample says yes or no.
    pub fn flag(&mut self, family: &'static Family, on: bool) {
        self.one(family, f64::from(u8::from(on)));
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.0
    }
}

impl Samples<'_> {
    /// One sample; `labels` are values in the order of the table.
    pub fn value(&mut self, labels: &[&str], value: f64) {
        self.line("", labels, None, value);
    }

    /// The samples of one histogram.
    pub fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        let mut below = 0;
        for (bound, count) in self.family.buckets.iter().zip(&histogram.counts) {
            below += count;
            self.line("_bucket", labels, Some(&bound.to_string()), below as f64);
        }
        let all = histogram.count() as f64;
        self.line("_bucket", labels, Some("+Inf"), all);
        self.line("_sum", labels, None, histogram.sum);
        self.line("_count", labels, None, all);
    }

    fn line(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: f64) {
        debug_assert_eq!(
            labels.len(),
            self.family.labels.len(),
            "{}",
            self.family.name
        );
        let named = self.family.labels.iter().map(|label| label.name);
        let pairs = named
            .zip(labels.iter().copied())
            .chain(bound.map(|bound| ("le", bound)));
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)))
            .collect();
        let pairs = match pairs.as_slice() {
            [] => String::new(),
            pairs => format!("{{{}}}", pairs.join(",")),
        };
        *self.text += &format!("{}{suffix}{pairs} {value}\n", self.family.name);
    }
}

fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted {
        text.replace('"', "\\\"")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{BUILD, CALL_SECONDS, DRAINING, LEASE_SECONDS};
    use super::*;

    #[test]
    fn samples_have_their_labels_and_odd_values_are_escaped() {
        let mut text = Text::default();
        text.flag(&DRAINING, true);
        text.family(&BUILD).value(&["1\\2", "a \"b\"\nc"], 1.0);
        let text = text.finish();
        assert!(
            text.contains("# TYPE sidetone_draining gauge\nsidetone_draining 1\n"),
            "{text}"
        );
        assert!(
            text.ends_with("sidetone_build_info{version=\"1\\\\2\",node=\"a \\\"b\\\"\\nc\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn a_histogram_counts_upwards() {
        let mut histogram = Histogram::new(&LEASE_SECONDS);
        for seconds in [0.0004, 0.002, 7.0] {
            histogram.observe(seconds, &LEASE_SECONDS);
        }
        let mut text = Text::default();
        text.family(&LEASE_SECONDS)
            .histogram(&["adopt"], &histogram);
        text.family(&CALL_SECONDS);
        let text = text.finish();
        let counts: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("_bucket"))
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        assert_eq!(
            counts,
            ["0", "1", "1", "2", "2", "2", "2", "2", "2", "2", "3"]
        );
        assert!(text.contains("sidetone_lease_seconds_bucket{step=\"adopt\",le=\"0.0005\"} 1\n"));
        assert!(text.contains("sidetone_lease_seconds_count{step=\"adopt\"} 3\n"));
    }
}
