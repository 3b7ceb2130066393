//! Queues, hand-off, limits of a wait, deadlocks.

use super::check;

#[test]
fn first_come_first_served_and_nobody_gets_in_between() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         look k                     -> A alone x1 #1 for 100 | B | C
         A release k                -> 0, B: #2
         A acquire k 100            -> null
         D acquire k 100            -> null
         B release k                -> 0, C: #3
         stream                     -> k A granted, k A released, k B granted, k B released, k C granted",
    );
}

#[test]
fn b28_lapse_wakes_the_next_waiter() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         due                        -> 100
         @99
         @100                       -> B: #2
         due                        -> 200
         look k                     -> B alone x1 #2 for 100 | C
         stream                     -> k A granted, k A lapsed, k B granted",
    );
}

#[test]
fn a_newcomer_before_the_alarm_does_not_pass_the_line() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         @150!
         C acquire k 100            -> null, B: #2
         look k                     -> B alone x1 #2 for 100",
    );
}

#[test]
fn the_lease_of_a_waiter_begins_at_its_grant() {
    check(
        "A acquire k 1000               -> #1
         B acquire k 100 wait ever      -> waits
         @900
         A release k                    -> 0, B: #2
         look k                         -> B alone x1 #2 for 100",
    );
}

#[test]
fn the_alarm_follows_the_lease() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         due                        -> 100
         A renew k 500              -> #1
         due                        -> 500
         A reenter k 600            -> x2 #1
         due                        -> 600
         A renew k 50               -> #1
         due                        -> 50
         gone B
         due                        -> never",
    );
}

#[test]
fn a_wait_that_ends_is_null_and_then_it_was_not_granted() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait 50    -> waits
         due                        -> 50
         @49
         @50                        -> B: null
         look k                     -> A alone x1 #1 for 50
         A release k                -> 0
         look k                     -> free",
    );
}

#[test]
fn b77_a_wait_that_ends_as_the_lock_becomes_free_gets_one_answer() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait 100   -> waits
         C acquire k 100 wait 100   -> waits
         @100                       -> B: #2, C: null
         look k                     -> B alone x1 #2 for 100",
    );
}

#[test]
fn a_wait_that_ended_before_is_not_granted_however_late_the_alarm_comes() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait 99    -> waits
         C acquire k 100 wait ever  -> waits
         @150!
         A release k                -> null, B: null, C: #2
         look k                     -> C alone x1 #2 for 100",
    );
}

#[test]
fn b29_a_waiter_that_ends_at_the_head_lets_those_behind_it_pass() {
    check(
        "A acquire k 1000 shared            -> #1
         B acquire k 100 wait 50            -> waits
         C acquire k 100 shared wait ever   -> waits
         @50                                -> B: null, C: #2",
    );
}

#[test]
fn a_wait_of_no_length_is_over_at_once() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait 0     -> waits, B: null
         look k                     -> A alone x1 #1 for 100",
    );
}

#[test]
fn b26_nobody_is_dropped_before_its_own_wait_ends() {
    check(
        "A acquire k 1000           -> #1
         B acquire k 10 wait 600000 -> waits
         C acquire k 10 wait 600000 -> waits
         @900
         A renew k 500000           -> #1
         @420000
         D acquire k 10 wait 600000 -> waits
         A release k                -> 0, B: #2
         @420010                    -> C: #3
         @420020                    -> D: #4",
    );
}

#[test]
fn b33_a_waiter_whose_client_is_gone_leaves_the_line() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         gone B
         look k                     -> A alone x1 #1 for 100 | C
         A release k                -> 0, C: #2",
    );
}

#[test]
fn a_grant_that_could_not_be_told_is_handed_on() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         A release k                -> 0, B: #2
         untold B                   -> C: #3
         look k                     -> C alone x1 #3 for 100
         stream                     -> k A granted, k A released, k B granted, k B released, k C granted",
    );
}

#[test]
fn a_grant_that_could_not_be_told_takes_back_nothing_else() {
    check(
        "A acquire k 100            -> #1
         B acquire k 10 wait ever   -> waits
         A release k                -> 0, B: #2
         @10!
         B acquire k 100            -> #3
         untold B
         look k                     -> B alone x1 #3 for 100",
    );
}

#[test]
fn a_grant_that_could_not_be_told_takes_back_one_hold() {
    check(
        "A acquire k 100            -> #1
         B reenter k 100 wait ever  -> waits
         A release k                -> 0, B: #2
         B reenter k 100            -> x2 #2
         untold B
         look k                     -> B alone x1 #2 for 100",
    );
}

#[test]
fn an_upgrade_that_could_not_be_told_leaves_the_holder_as_it_was() {
    check(
        "A acquire k 100 shared limit 2         -> #1
         B acquire k 100 shared limit 2         -> #2
         A reenter k 100 wait ever              -> waits
         C acquire k 100 shared wait ever       -> waits
         D acquire k 100 shared wait ever       -> waits
         B release k                            -> 0, A: x2 #3
         untold A                               -> C: #4
         look k                                 -> A shared/2 x1 #3 for 100 + C shared x1 #4 for 100 | D",
    );
}

#[test]
fn a_grant_of_several_keys_that_could_not_be_told_is_handed_on() {
    check(
        "A acquire a 100            -> #1
         B acquire a,b 100 wait ever -> waits
         C acquire b 100 wait ever  -> waits
         A release a                -> 0, B: #2
         look b                     -> B alone x1 #2 for 100 | C
         untold B                   -> C: #3
         look a                     -> free",
    );
}

#[test]
fn the_same_request_takes_over_its_place() {
    check(
        "A acquire k 100                    -> #1
         B acquire k 100 wait 50            -> waits
         C acquire k 100 wait ever          -> waits
         B acquire k 70 wait 500            -> waits, B: REPLACED
         look k                             -> A alone x1 #1 for 100 | B | C
         due                                -> 100
         @60
         @100                               -> B: #2
         look k                             -> B alone x1 #2 for 70 | C",
    );
}

#[test]
fn a_takeover_may_change_the_form_and_wait_for_ever() {
    check(
        "A acquire k 1000           -> #1
         B acquire k 100 wait 50    -> waits
         B reenter k 100 wait ever  -> waits, B: REPLACED
         @100
         A release k                -> 0, B: #2
         look k                     -> B alone x1 #2 for 100",
    );
}

#[test]
fn a_different_waiting_request_of_the_same_owner_is_an_error() {
    check(
        "A acquire k 100                        -> #1
         B acquire k 100 wait ever              -> waits
         B acquire k 100 shared wait ever       -> WAITS
         B acquire k,l 100 wait ever            -> WAITS
         B acquire l,m 100 wait ever            -> #2
         C acquire l 100 shared limit 2 wait ever -> waits
         C acquire l 100 shared limit 3 wait ever -> WAITS
         C acquire l 100 shared wait ever       -> WAITS
         look k                                 -> A alone x1 #1 for 100 | B",
    );
}

#[test]
fn a_request_without_wait_leaves_the_queue_alone() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         B acquire k 100            -> null
         B acquire k 100 shared     -> null
         look k                     -> A alone x1 #1 for 100 | B",
    );
}

#[test]
fn the_queue_is_bounded_and_a_takeover_needs_no_new_place() {
    check(
        "queue 1
         A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> QUEUEFULL
         B acquire k 100 wait ever  -> waits, B: REPLACED
         C acquire k 100            -> null
         C acquire l 100 wait ever  -> #2
         queue 2
         C acquire k 100 wait ever  -> waits",
    );
}

#[test]
fn reentry_passes_the_line() {
    check(
        "A reenter k 100            -> #1
         B acquire k 100 wait ever  -> waits
         A reenter k 200            -> x2 #1
         look k                     -> A alone x2 #1 for 200 | B
         A release k                -> 1
         A release k                -> 0, B: #2",
    );
}

#[test]
fn an_operator_ends_a_wait() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         unblock B                  -> B: UNBLOCKED
         look k                     -> A alone x1 #1 for 100",
    );
}

#[test]
fn b83_a_server_that_decides_no_longer_lets_everyone_go() {
    check(
        "A acquire k 100 session 7      -> #1
         B acquire k 100 wait ever      -> waits
         C acquire k 100 wait 50        -> waits
         abdicate                       -> B: UNBLOCKED, C: UNBLOCKED
         look k                         -> A alone x1 #1 for 100
         due                            -> never
         @1000",
    );
}

#[test]
fn a_wait_that_would_close_a_circle_is_an_error_at_once() {
    check(
        "A acquire a 100            -> #1
         B acquire b 100            -> #2
         A acquire b 100 wait ever  -> waits
         B acquire a 100 wait ever  -> DEADLOCK B A
         B acquire a 100            -> null
         B release b                -> 0, A: #3",
    );
}

#[test]
fn a_circle_is_named_in_its_order() {
    check(
        "A acquire a 100            -> #1
         B acquire b 100            -> #2
         C acquire c 100            -> #3
         D acquire d 100            -> #4
         A acquire b 100 wait ever  -> waits
         B acquire c 100 wait ever  -> waits
         C acquire d 100 wait ever  -> waits
         D acquire b 100 wait 10    -> DEADLOCK D B C
         D acquire a 100 wait 10    -> DEADLOCK D A B C",
    );
}

#[test]
fn a_circle_may_run_through_the_waiters_ahead() {
    check(
        "A acquire a 100                    -> #1
         B acquire b 100 shared             -> #2
         C acquire c 100                    -> #3
         A acquire b 100 wait ever          -> waits
         C acquire b 100 shared wait ever   -> waits
         B acquire c 100 wait ever          -> DEADLOCK B C A",
    );
}

#[test]
fn a_lease_that_has_ended_closes_no_circle() {
    check(
        "A acquire a 50             -> #1
         B acquire b 100            -> #2
         A acquire b 100 wait ever  -> waits
         @60!
         B acquire a 100 wait ever  -> #3",
    );
}

#[test]
fn one_of_n_places_is_stuck_only_when_every_holder_is() {
    check(
        "A acquire k 100 shared limit 2             -> #1
         B acquire k 100 shared limit 2             -> #2
         C acquire c 100                            -> #3
         C acquire k 100 shared limit 2 wait ever   -> waits
         A acquire c 100 wait ever                  -> waits
         B acquire c 100 wait ever                  -> DEADLOCK B C
         B release k                                -> 0, C: #4",
    );
}

#[test]
fn what_is_due_beyond_reach_is_served_by_the_next_drain_that_reaches_it() {
    check(
        "A acquire k 100            -> #1
         B acquire l 100            -> #2
         C acquire k 100 wait ever  -> waits
         D acquire l 100 wait ever  -> waits
         far k
         @100                       -> D: #3
         due                        -> 100
         near                       -> C: #4
         due                        -> never",
    );
}

#[test]
fn a_circle_through_keys_beyond_reach_is_found_by_the_next_drain_that_reaches_them() {
    check(
        "A acquire k 100            -> #1
         B acquire l 100            -> #2
         A acquire l 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         far l
         B acquire k 100 wait ever  -> waits
         D acquire k 100 wait ever  -> waits
         near                       -> B: DEADLOCK B A
         B release l                -> 0, A: #3
         look k                     -> A alone x1 #1 for 100 | C | D",
    );
}

#[test]
fn an_upgrade_may_close_a_circle_through_another_wait_of_its_owner() {
    check(
        "A acquire k 100 shared limit 2             -> #1
         B acquire k 100 shared limit 2             -> #2
         D acquire z 100                            -> #3
         A acquire z 100 wait ever                  -> waits
         D acquire k 100 shared limit 2 wait ever   -> waits
         A reenter k 100 wait ever                  -> DEADLOCK A D
         B release k                                -> 0, D: #4",
    );
}

#[test]
fn the_ordinary_crowd_around_a_busy_key_is_no_deadlock() {
    check(
        "A acquire k 100            -> #1
         B acquire l 100            -> #2
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         D acquire l 100 wait ever  -> waits
         A release k                -> 0, B: #3
         B release k                -> 0, C: #4
         B release l                -> 0, D: #5",
    );
}

#[test]
fn what_is_counted() {
    check(
        "A acquire a 100            -> #1
         A acquire b 100            -> #2
         B acquire a 100            -> null
         B acquire a 100 wait 10    -> waits
         @10                        -> B: null
         B acquire a 100 wait ever  -> waits
         A acquire c 100            -> #3
         A release a                -> 0, B: #4
         break b                    -> 1
         @200
         B renew a 100              -> null
         stats                      -> Stats { grants: 4, refusals: 2, handoffs: 1, releases: 1, lapses: 1, revocations: 1, closures: 0, deadlocks: 0 }",
    );
}
