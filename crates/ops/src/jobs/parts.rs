//! Items of several parts, as of GNU parallel: combinations of several sources, and several items in one run.

use super::item::Item;

/// Every combination of the items of several sources, each with the parts of its items in order. The last source changes fastest.
/// `None`: more than `most`.
#[must_use]
pub fn combined(sources: Vec<Vec<Item>>, most: usize) -> Option<Vec<Item>> {
    let mut sources = sources.into_iter();
    let first = sources.next().unwrap_or_default();
    sources.try_fold(first, |before, source| {
        let count = before.len().checked_mul(source.len()).filter(|count| *count <= most)?;
        let mut all = Vec::with_capacity(count);
        for one in &before {
            all.extend(source.iter().map(|other| joined([one, other])));
        }
        Some(all)
    })
}

/// The items in groups of this many; the last group may be smaller.
#[must_use]
pub fn grouped(items: Vec<Item>, size: usize) -> Vec<Item> {
    if size < 2 {
        return items;
    }
    items.chunks(size).map(joined).collect()
}

/// One item with all parts of these.
fn joined<'a>(items: impl IntoIterator<Item = &'a Item, IntoIter: ExactSizeIterator> + Clone) -> Item {
    if items.clone().into_iter().len() == 1 {
        return items.into_iter().next().cloned().unwrap_or_default();
    }
    let texts: Vec<&[u8]> = items.clone().into_iter().map(|item| item.bytes.as_slice()).collect();
    let parts = items.into_iter().flat_map(|item| item.arguments().iter().cloned()).collect();
    Item { parts, ..Item::plain(texts.join(&b' ')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(texts: &[&str]) -> Vec<Item> {
        texts.iter().map(|text| Item::plain(*text)).collect()
    }

    fn shown(items: &[Item]) -> Vec<String> {
        items.iter().map(Item::shown).collect()
    }

    #[test]
    fn several_sources_are_combined_and_the_last_one_changes_fastest() {
        let all =
            combined(vec![items(&["a", "b"]), items(&["1", "2"]), items(&["x"])], 4).expect("few enough");
        assert_eq!(shown(&all), ["a 1 x", "a 2 x", "b 1 x", "b 2 x"]);
        assert_eq!(all[1].parts, [b"a".to_vec(), b"2".to_vec(), b"x".to_vec()]);
        assert_eq!(combined(vec![items(&["a", "b"]), items(&["1", "2"])], 3), None);
        assert_eq!(combined(vec![items(&["a"]), Vec::new()], 3), Some(Vec::new()));
        assert_eq!(combined(vec![items(&["a"])], 3), Some(items(&["a"])), "one source is as it was");
    }

    #[test]
    fn several_items_of_one_run_are_its_parts() {
        let pairs = grouped(items(&["a b", "c", "d"]), 2);
        assert_eq!(shown(&pairs), ["a b c", "d"]);
        assert_eq!(pairs[0].parts, [b"a b".to_vec(), b"c".to_vec()]);
        assert_eq!(pairs[1], Item::plain("d"));
        assert_eq!(grouped(items(&["a"]), 1), items(&["a"]));
    }
}
