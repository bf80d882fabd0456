//! Metrics in the older text format of Prometheus, version 0.0.4, for readers that do not ask for OpenMetrics, such as `promtool`.

/// The media type.
pub(super) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The same metrics, from OpenMetrics text that Ostler wrote. There a family has a name without the ending of its samples, a unit and an
/// end; samples are written alike.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    // The help of a family comes before its type, which decides the name.
    let mut help = None;
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), about) => help = about,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (ending, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    other => ("", other),
                };
                if let Some(about) = help.take() {
                    plain.push_str(&format!("# HELP {name}{ending} {about}\n"));
                }
                plain.push_str(&format!("# TYPE {name}{ending} {kind}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_families_are_those_of_their_samples() {
        let open = "# HELP a Some.\n# TYPE a counter\na_total{b=\"# TYPE\"} 1\n# HELP c_seconds More.\n# TYPE c_seconds gauge\n\
            # UNIT c_seconds seconds\nc_seconds 1.5\n# HELP d It.\n# TYPE d info\nd_info{v=\"1\"} 1\n# EOF\n";
        let plain = "# HELP a_total Some.\n# TYPE a_total counter\na_total{b=\"# TYPE\"} 1\n# HELP c_seconds More.\n\
            # TYPE c_seconds gauge\nc_seconds 1.5\n# HELP d_info It.\n# TYPE d_info gauge\nd_info{v=\"1\"} 1\n";
        assert_eq!(from_openmetrics(open), plain);
    }
}
