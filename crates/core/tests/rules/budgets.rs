//! Property of budgets: however many attempts run at once, a budget is passed by at most what those in flight cost above their
//! reservations.

use ostler_core::{Budget, BudgetVerdict, Cost, CostReservation, Settlement, Spending, Timestamp};
use proptest::prelude::*;

use crate::fixed::cases;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

#[derive(Clone, Debug)]
enum Op {
    Start,
    /// An attempt in flight spends.
    Spend(usize, u64),
    End(usize, Settlement),
}

fn op() -> impl Strategy<Value = Op> {
    let how = prop_oneof![Just(Settlement::Ran), Just(Settlement::Failed), Just(Settlement::Interrupted)];
    prop_oneof![
        3 => Just(Op::Start),
        4 => (any::<usize>(), 0_u64..40).prop_map(|(which, cost)| Op::Spend(which, cost)),
        2 => (any::<usize>(), how).prop_map(|(which, how)| Op::End(which, how)),
    ]
}

#[derive(Clone, Copy)]
struct Running {
    held: CostReservation,
    reserved: Cost,
}

/// What an attempt has cost above its reservation.
fn excess(running: &Running) -> Cost {
    running.held.spent.less(running.reserved)
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_budget_is_passed_by_at_most_the_excess_of_what_is_in_flight(
        total in 1_u64..300,
        reserve in proptest::option::of(1_u64..40),
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let limit = Cost::from_nanos(total);
        let budget = Budget { total: Some(limit), reserve: reserve.map(Cost::from_nanos), per_day: None };
        let mut spending = Spending::default();
        let mut flying: Vec<Running> = Vec::new();
        // The excess of attempts that were in flight at the last start, and have ended since.
        let mut landed = Cost::default();
        let mut all = Cost::default();
        for op in ops {
            match op {
                Op::Start => {
                    if let BudgetVerdict::Start(reserved) = spending.ask(&budget, NOW) {
                        let held = spending.reserve(reserved);
                        prop_assert!(spending.spent + spending.reserved <= limit, "{spending:?}");
                        flying.push(Running { held, reserved });
                        landed = Cost::default();
                    }
                }
                Op::Spend(which, cost) if !flying.is_empty() => {
                    let at = which % flying.len();
                    spending.spend(&mut flying[at].held, Cost::from_nanos(cost), NOW);
                    all = all + Cost::from_nanos(cost);
                }
                Op::End(which, how) if !flying.is_empty() => {
                    let ended = flying.swap_remove(which % flying.len());
                    landed = landed + excess(&ended);
                    spending.settle(ended.held, how);
                }
                Op::Spend(..) | Op::End(..) => {}
            }
            let above: Cost = flying.iter().map(excess).sum();
            prop_assert!(spending.spent <= limit + above + landed, "{spending:?}");
            prop_assert_eq!(spending.spent, all);
            prop_assert_eq!(spending.reserved, flying.iter().map(|running| running.held.left).sum::<Cost>());
            prop_assert_eq!(spending.in_flight, flying.len() as u64);
        }
    }
}
