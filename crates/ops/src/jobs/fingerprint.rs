//! Fingerprints of jobs and deterministic task ids: a repeated command finds its earlier run.

use std::collections::HashMap;

use ostler_core::{Id, JobId, TaskId};
use sha2::{Digest as _, Sha256};

use super::item::Item;

/// The bits of an id that hold its time.
const TIME_BITS: u128 = !((1 << 80) - 1);

/// Announces the parts of an item in its digest: no length of a part.
const PARTS: u64 = u64::MAX;

/// A digest of one item, which tells equal items apart by their occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemDigest([u8; 32]);

/// The digests of the items, in order.
pub(super) fn marks(items: &[Item]) -> Vec<ItemDigest> {
    let mut seen: HashMap<[u8; 32], u64> = HashMap::new();
    let mark = |item: &Item| {
        let digest = digest_of(item);
        let before = seen.entry(digest).or_default();
        let occurrence = *before;
        *before += 1;
        ItemDigest(
            Sha256::new().chain_update(digest).chain_update(occurrence.to_be_bytes()).finalize().into(),
        )
    };
    items.iter().map(mark).collect()
}

fn digest_of(item: &Item) -> [u8; 32] {
    let mut digest = Sha256::new();
    part(&mut digest, &item.bytes);
    for (name, value) in &item.fields {
        part(&mut digest, name.as_bytes());
        part(&mut digest, value.as_bytes());
    }
    // An item of one part has the digest that it had before items had parts.
    if !item.parts.is_empty() {
        digest.update(PARTS.to_be_bytes());
        item.parts.iter().for_each(|one| part(&mut digest, one));
    }
    digest.finalize().into()
}

/// Each part is preceded by its length, so that different lists of parts never have the same bytes.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

/// Whether the order of the items matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOrder {
    Matters,
    /// The same items in another order are the same job.
    Free,
}

/// A digest of everything a job is made from: `texts` (the words of its command, its folder, its options) and its items.
pub(super) fn fingerprint(texts: &[&[u8]], marks: &[ItemDigest], order: ItemOrder) -> String {
    let mut digest = Sha256::new();
    digest.update((texts.len() as u64).to_be_bytes());
    texts.iter().for_each(|text| part(&mut digest, text));
    let mut marks = marks.to_vec();
    match order {
        ItemOrder::Matters => {}
        ItemOrder::Free => marks.sort_unstable(),
    }
    marks.iter().for_each(|mark| digest.update(mark.0));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn task_of(job: JobId, mark: ItemDigest) -> TaskId {
    derived(job, &mark.0)
}

/// An id with the time of the job, derived from it and this mark.
pub(super) fn derived(job: JobId, mark: &[u8]) -> TaskId {
    let digest = Sha256::new().chain_update(job.0.to_bytes()).chain_update(mark).finalize();
    let mut low = [0; 16];
    low.copy_from_slice(&digest[..16]);
    TaskId(Id::from_bits(job.0.bits() & TIME_BITS | u128::from_be_bytes(low) & !TIME_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(texts: &[&str]) -> Vec<Item> {
        texts.iter().map(|text| Item::plain(*text)).collect()
    }

    #[test]
    fn equal_items_have_ids_of_their_own_and_the_same_ones_again() {
        let job = JobId(Id::from_bits(7 << 80));
        let ids: Vec<TaskId> =
            marks(&items(&["a", "b", "a"])).into_iter().map(|mark| task_of(job, mark)).collect();
        assert!(ids[0] != ids[2] && ids[0] != ids[1]);
        let again: Vec<TaskId> =
            marks(&items(&["a", "a", "b"])).into_iter().map(|mark| task_of(job, mark)).collect();
        assert_eq!([ids[0], ids[2], ids[1]], [again[0], again[1], again[2]]);
        assert!(ids.iter().all(|id| id.0.bits() >> 80 == 7), "they sort with their job");
        let parts = |parts: &[&str]| Item {
            parts: parts.iter().map(|part| part.as_bytes().to_vec()).collect(),
            ..Item::plain("a b")
        };
        let digests = marks(&[parts(&[]), parts(&["a", "b"]), parts(&["a b", ""])]);
        assert!(digests[0] != digests[1] && digests[1] != digests[2], "what is run differs");
        let other = JobId(Id::from_bits(7 << 80 | 1));
        assert_ne!(task_of(other, marks(&items(&["a"]))[0]), ids[0]);
    }

    #[test]
    fn the_same_items_with_another_command_are_another_job() {
        let all = marks(&items(&["a", "b"]));
        let print = |texts: &[&[u8]]| fingerprint(texts, &all, ItemOrder::Free);
        assert_eq!(print(&[b"gzip", b"/home"]), print(&[b"gzip", b"/home"]));
        assert_ne!(print(&[b"gzip", b"/home"]), print(&[b"gzip/", b"home"]));
        assert_ne!(print(&[b"gzip"]), print(&[b"gzip", b""]));
        assert_eq!(print(&[b"gzip"]).len(), 64);
    }

    #[test]
    fn the_order_of_items_matters_only_where_it_is_said() {
        let (one, two) = (marks(&items(&["a", "b"])), marks(&items(&["b", "a"])));
        assert_eq!(fingerprint(&[], &one, ItemOrder::Free), fingerprint(&[], &two, ItemOrder::Free));
        assert_ne!(fingerprint(&[], &one, ItemOrder::Matters), fingerprint(&[], &two, ItemOrder::Matters));
        let more = marks(&items(&["a", "b", "b"]));
        assert_ne!(fingerprint(&[], &one, ItemOrder::Free), fingerprint(&[], &more, ItemOrder::Free));
    }
}
