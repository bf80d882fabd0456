//! Settings of a node, stored with its session as JSON by queue: what they say of the node itself.

use crate::views::NodeRecord;

/// The entry of the node itself: no queue has an empty name.
pub const OF_THE_NODE: &str = "";
/// The field of that entry that says that the node serves metrics.
pub const METRICS: &str = "metrics";

impl NodeRecord {
    /// Whether the node serves metrics.
    #[must_use]
    pub fn serves_metrics(&self) -> bool {
        let settings: serde_json::Value = serde_json::from_str(&self.settings).unwrap_or_default();
        settings.get(OF_THE_NODE).and_then(|own| own.get(METRICS)).is_some()
    }
}
