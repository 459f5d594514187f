//! The figures of a load run: as a table for people, as JSON for programs, and against bars.

use serde_json::{Map, Value, json};

use super::generator::Outcome;
use super::times::Times;
use super::witness::{Stall, undisturbed};

/// The bars that a run may be held against. One that is missed makes the command fail.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Bars {
    /// CPU of the server, ms a session-second.
    #[arg(long, value_name = "MS")]
    pub max_cpu: Option<f64>,
    /// Gap between agent frames: 99th percentile beyond the median, ms.
    #[arg(long, value_name = "MS")]
    pub max_gap_spread: Option<f64>,
    /// Gap between agent frames: 99.9th percentile beyond the median, ms.
    #[arg(long, value_name = "MS")]
    pub max_gap_tail: Option<f64>,
    /// Median answer time beyond the hang-over, ms.
    #[arg(long, value_name = "MS")]
    pub max_turn_p50: Option<f64>,
    /// 99th percentile of the answer time beyond the hang-over, ms.
    #[arg(long, value_name = "MS")]
    pub max_turn_p99: Option<f64>,
    /// 99th percentile of barge-in, ms.
    #[arg(long, value_name = "MS")]
    pub max_barge_in_p99: Option<f64>,
    /// Memory of the server, KiB a session.
    #[arg(long, value_name = "KIB")]
    pub max_memory: Option<f64>,
    #[arg(long, value_name = "COUNT")]
    pub max_underruns: Option<u64>,
}

/// What is known beside the generator's own outcome.
pub(super) struct Setting {
    pub sessions: usize,
    pub speech_share: f64,
    /// Silence that the server's settings make it wait for before it answers, ms.
    pub hangover_ms: Option<f64>,
    /// Resident memory before the first session, after the rehearsal, KiB.
    pub rss_before_kib: Option<u64>,
}

/// All figures of one run; `None` where nothing was measured.
pub(super) struct Report {
    /// Name, unit and value, in the order in which they are shown.
    figures: Vec<(&'static str, &'static str, Option<f64>)>,
    threads: Vec<(String, f64)>,
    lost: Vec<String>,
}

impl Report {
    pub(super) fn new(setting: &Setting, outcome: &Outcome) -> Self {
        let found = &outcome.figures;
        let session_seconds = setting.sessions as f64 * outcome.seconds;
        let per = |ms: f64| ms / session_seconds;
        let both = outcome.at_start.as_ref().zip(outcome.at_end.as_ref());
        let cpu = both.map(|(start, end)| per(end.cpu_ms.saturating_sub(start.cpu_ms) as f64));
        let memory = outcome.at_end.as_ref().zip(setting.rss_before_kib);
        let memory = memory
            .map(|(end, before)| (end.rss_kib as f64 - before as f64) / setting.sessions as f64);
        let beyond =
            |share| Some((found.turns.quantile_ms(share)? - setting.hangover_ms?).max(0.0));
        let gap = |share| found.gaps.quantile_ms(share);
        let spread = |share| Some(gap(share)? - gap(0.5)?);
        let stalls = outcome.stalls.as_deref();
        let rest = stalls
            .and_then(|stalls| undisturbed(&found.gaps, &found.late, stalls, outcome.seconds));
        let rest_tail =
            rest.and_then(|rest| Some(rest.quantile_ms(0.999)? - rest.quantile_ms(0.5)?));
        let stall_ms = |stall: &Stall| stall.length() as f64 / 1000.0;
        let figures = vec![
            ("sessions", "", Some(setting.sessions as f64)),
            ("lost_sessions", "", Some(outcome.lost.len() as f64)),
            ("seconds", "s", Some(outcome.seconds)),
            ("speech_share", "", Some(setting.speech_share)),
            ("cpu", "ms/s", cpu),
            ("memory", "KiB", memory),
            (
                "base",
                "MiB",
                setting.rss_before_kib.map(|kib| kib as f64 / 1024.0),
            ),
            (
                "rss",
                "MiB",
                outcome
                    .at_end
                    .as_ref()
                    .map(|end| end.rss_kib as f64 / 1024.0),
            ),
            ("frames_out", "", Some(found.frames_out as f64)),
            ("frames_in", "", Some(found.frames_in as f64)),
            ("underruns", "", Some(found.underruns as f64)),
            ("gap_p50", "ms", gap(0.5)),
            ("gap_p99", "ms", gap(0.99)),
            ("gap_p999", "ms", gap(0.999)),
            ("gap_max", "ms", max(&found.gaps)),
            ("gap_spread", "ms", spread(0.99)),
            ("gap_tail", "ms", spread(0.999)),
            (
                "machine_stalls",
                "",
                stalls.map(|stalls| stalls.len() as f64),
            ),
            (
                "machine_stall_max",
                "ms",
                stalls.map(|stalls| stalls.iter().map(stall_ms).fold(0.0, f64::max)),
            ),
            ("gap_tail_between", "ms", rest_tail),
            ("answers", "", Some(found.turns.count() as f64)),
            ("unanswered", "", Some(found.unanswered as f64)),
            ("answer_p50", "ms", found.turns.quantile_ms(0.5)),
            ("answer_p99", "ms", found.turns.quantile_ms(0.99)),
            ("hangover", "ms", setting.hangover_ms),
            ("turn_p50", "ms", beyond(0.5)),
            ("turn_p99", "ms", beyond(0.99)),
            ("barge_ins", "", Some(found.barge_ins.count() as f64)),
            ("uncleared", "", Some(found.uncleared as f64)),
            ("barge_in_p50", "ms", found.barge_ins.quantile_ms(0.5)),
            ("barge_in_p99", "ms", found.barge_ins.quantile_ms(0.99)),
            (
                "own_lateness_p50",
                "ms",
                found.own_lateness.quantile_ms(0.5),
            ),
            (
                "own_lateness_p99",
                "ms",
                found.own_lateness.quantile_ms(0.99),
            ),
            ("own_lateness_max", "ms", max(&found.own_lateness)),
        ];
        let mut threads: Vec<(String, f64)> = both
            .map(|(start, end)| {
                let spent = |name: &String, ms: &u64| {
                    ms.saturating_sub(start.threads.get(name).copied().unwrap_or(0))
                };
                end.threads
                    .iter()
                    .map(|(name, ms)| (name.clone(), per(spent(name, ms) as f64)))
                    .collect()
            })
            .unwrap_or_default();
        threads.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self {
            figures,
            threads,
            lost: outcome.lost.clone(),
        }
    }

    /// The value of one figure.
    fn value(&self, name: &str) -> Option<f64> {
        self.figures
            .iter()
            .find(|figure| figure.0 == name)
            .and_then(|figure| figure.2)
    }

    /// One sentence for each bar that was missed, or that could not be measured.
    pub(super) fn missed(&self, bars: &Bars) -> Vec<String> {
        let bars = [
            ("cpu", bars.max_cpu),
            ("gap_spread", bars.max_gap_spread),
            ("gap_tail", bars.max_gap_tail),
            ("turn_p50", bars.max_turn_p50),
            ("turn_p99", bars.max_turn_p99),
            ("barge_in_p99", bars.max_barge_in_p99),
            ("memory", bars.max_memory),
            ("underruns", bars.max_underruns.map(|count| count as f64)),
        ];
        let mut missed = Vec::new();
        for (name, bar) in bars {
            match (bar, self.value(name)) {
                (Some(bar), Some(value)) if value > bar => {
                    missed.push(format!("{name} is {value:.2}, at most {bar} is allowed"))
                }
                (Some(_), None) => missed.push(format!("{name} was not measured")),
                _ => {}
            }
        }
        if let Some(first) = self.lost.first() {
            missed.push(format!(
                "{} sessions were lost; the first: {first}",
                self.lost.len()
            ));
        }
        missed
    }

    /// For people: a line a figure.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for (name, unit, value) in &self.figures {
            let value = match value {
                None => "–".to_owned(),
                Some(value) if unit.is_empty() && value.fract() == 0.0 => format!("{value:.0}"),
                Some(value) => format!("{value:.2}"),
            };
            text += format!("{:<18} {value:>10} {unit}", name.replace('_', " ")).trim_end();
            text.push('\n');
        }
        for (name, ms) in self.threads.iter().filter(|(_, ms)| *ms >= 0.005) {
            text += &format!("{:<18} {ms:>10.2} ms/s\n", format!("  thread {name}"));
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let mut object = Map::new();
        for (name, unit, value) in &self.figures {
            let unit = unit.to_lowercase().replace("ms/s", "ms_per_session_second");
            let key = if unit.is_empty() {
                (*name).to_owned()
            } else {
                format!("{name}_{unit}")
            };
            object.insert(key, json!(value));
        }
        let threads: Map<String, Value> = self
            .threads
            .iter()
            .map(|(name, ms)| (name.clone(), json!(ms)))
            .collect();
        object.insert(
            "cpu_by_thread_ms_per_session_second".to_owned(),
            Value::Object(threads),
        );
        Value::Object(object)
    }
}

fn max(times: &Times) -> Option<f64> {
    (times.count() > 0).then(|| times.max_ms())
}

#[cfg(test)]
mod tests {
    use super::super::listener::Figures;
    use super::super::process::Reading;
    use super::*;

    fn report() -> Report {
        let mut figures = Figures::new();
        for _ in 0..99 {
            figures.gaps.add(20_000);
        }
        figures.gaps.add(23_000);
        figures.turns.add(1_204_000);
        let reading = |cpu_ms, rss_kib| {
            let threads = [("media".to_owned(), cpu_ms)].into();
            Some(Reading {
                cpu_ms,
                rss_kib,
                threads,
            })
        };
        let outcome = Outcome {
            figures,
            seconds: 10.0,
            at_start: reading(1000, 30_000),
            at_end: reading(1800, 31_000),
            lost: Vec::new(),
            stalls: None,
        };
        let setting = Setting {
            sessions: 100,
            speech_share: 0.4,
            hangover_ms: Some(1200.0),
            rss_before_kib: Some(21_000),
        };
        Report::new(&setting, &outcome)
    }

    #[test]
    fn figures_are_per_session_and_second() {
        let report = report();
        assert_eq!(report.value("cpu"), Some(0.8));
        assert_eq!(report.value("memory"), Some(100.0));
        assert_eq!(report.value("turn_p50"), Some(4.0));
        assert_eq!(report.value("gap_tail"), Some(3.0));
        assert_eq!(report.json()["cpu_ms_per_session_second"], 0.8);
        assert!(report.table().contains("thread media"));
    }

    #[test]
    fn a_missed_bar_is_named_and_so_is_an_unmeasured_one() {
        let report = report();
        let bars = Bars {
            max_cpu: Some(0.9),
            max_gap_tail: Some(3.0),
            ..Bars::default()
        };
        assert_eq!(report.missed(&bars), Vec::<String>::new());
        let bars = Bars {
            max_cpu: Some(0.5),
            max_barge_in_p99: Some(100.0),
            ..Bars::default()
        };
        assert_eq!(
            report.missed(&bars),
            [
                "cpu is 0.80, at most 0.5 is allowed",
                "barge_in_p99 was not measured"
            ]
        );
    }
}
