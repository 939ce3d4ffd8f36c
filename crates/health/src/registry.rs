//! Types of metrics, and their text for Prometheus (format 0.0.4).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

/// A metric of one type.
pub trait Metric {
    const KIND: &'static str;

    /// Each series: the values of its labels and its number.
    fn series(&self) -> Vec<(Vec<Cow<'static, str>>, u64)>;

    /// Help, type and every series. A metric without a series is left out.
    fn write(&self, page: &mut String, declared: Declared) {
        let Declared { name, help, labels } = declared;
        let series = self.series();
        if series.is_empty() {
            return;
        }
        push(page, format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", Self::KIND));
        for (values, number) in series {
            page.push_str(name);
            for (index, (label, value)) in labels.iter().zip(values).enumerate() {
                push(page, format_args!("{}{label}=\"{value}\"", if index == 0 { '{' } else { ',' }));
            }
            push(page, format_args!("{} {number}\n", if labels.is_empty() { "" } else { "}" }));
        }
    }
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string accepts any text");
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metric for Counter {
    const KIND: &'static str = "counter";

    fn series(&self) -> Vec<(Vec<Cow<'static, str>>, u64)> {
        vec![(Vec::new(), self.count())]
    }
}

/// A number of the moment.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    /// 1 if it is true.
    pub fn set_flag(&self, value: bool) {
        self.set(value.into());
    }
}

impl Metric for Gauge {
    const KIND: &'static str = "gauge";

    fn series(&self) -> Vec<(Vec<Cow<'static, str>>, u64)> {
        vec![(Vec::new(), self.0.load(Ordering::Relaxed))]
    }
}

/// A counter for each value of a label. Values that were never counted have no series.
#[derive(Debug, Default)]
pub struct CounterByLabel(Mutex<BTreeMap<&'static str, u64>>);

impl CounterByLabel {
    pub fn count(&self, label: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(label).or_default() += 1;
    }
}

impl Metric for CounterByLabel {
    const KIND: &'static str = "counter";

    fn series(&self) -> Vec<(Vec<Cow<'static, str>>, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(label, number)| (vec![Cow::Borrowed(*label)], *number)).collect()
    }
}

/// Gauges with labels, all of them set at the same time.
#[derive(Debug)]
pub struct GaugesByLabels<const LABELS: usize>(Mutex<Vec<([&'static str; LABELS], u64)>>);

impl<const LABELS: usize> Default for GaugesByLabels<LABELS> {
    fn default() -> GaugesByLabels<LABELS> {
        GaugesByLabels(Mutex::default())
    }
}

impl<const LABELS: usize> GaugesByLabels<LABELS> {
    pub fn set(&self, gauges: impl IntoIterator<Item = ([&'static str; LABELS], u64)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gauges.into_iter().collect();
    }
}

impl<const LABELS: usize> Metric for GaugesByLabels<LABELS> {
    const KIND: &'static str = "gauge";

    fn series(&self) -> Vec<(Vec<Cow<'static, str>>, u64)> {
        let gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges
            .iter()
            .map(|(labels, number)| (labels.iter().map(|label| Cow::Borrowed(*label)).collect(), *number))
            .collect()
    }
}

/// Numbers that only grow, with labels that records choose. All of them are set at the same time.
#[derive(Debug)]
pub struct Totals<const LABELS: usize>(Mutex<BTreeMap<[String; LABELS], u64>>);

impl<const LABELS: usize> Default for Totals<LABELS> {
    fn default() -> Totals<LABELS> {
        Totals(Mutex::default())
    }
}

impl<const LABELS: usize> Totals<LABELS> {
    pub fn set(&self, totals: BTreeMap<[String; LABELS], u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }
}

impl<const LABELS: usize> Metric for Totals<LABELS> {
    const KIND: &'static str = "counter";

    fn series(&self) -> Vec<(Vec<Cow<'static, str>>, u64)> {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let series = totals.iter().map(|(labels, number)| {
            (labels.iter().map(|label| Cow::Owned(escaped(label))).collect(), *number)
        });
        series.collect()
    }
}

/// As Prometheus reads the value of a label.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Declares every metric once: field, type, name with its labels, help. The page lists them in this order.
#[macro_export]
macro_rules! registry {
    (
        $(#[$about:meta])* $registry:ident:
        $($field:ident: $type:ty = $name:literal $([$($label:literal),+])?, $help:literal;)+
    ) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $registry {
            $(pub(crate) $field: $type,)+
        }

        impl $registry {
            /// All metrics in the text format of Prometheus.
            pub(crate) fn page(&self) -> String {
                let mut page = String::new();
                $(
                    let labels: &[&str] = &[$($($label),+)?];
                    $crate::Metric::write(&self.$field, &mut page, $crate::Declared { name: concat!("plumb_", $name), help: $help, labels });
                )+
                page
            }
        }
    };
}
