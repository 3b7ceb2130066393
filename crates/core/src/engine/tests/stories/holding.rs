//! Leases, holds, and who may do what with them.

use super::check;

#[test]
fn a_free_lock_is_granted_and_a_held_one_refused() {
    check(
        "A acquire k 100        -> #1
         B acquire k 100        -> null
         look k                 -> A alone x1 #1 for 100
         A release k            -> 0
         look k                 -> free
         B acquire k 100        -> #2
         stream                 -> k A granted, k A released, k B granted",
    );
}

#[test]
fn acquire_is_not_reentrant_and_says_so_in_any_mode() {
    check(
        "A acquire k 100                    -> #1
         A acquire k 100                    -> HELD #1
         A acquire k 100 wait ever          -> HELD #1
         A acquire k 100 shared             -> HELD #1
         A acquire k 100 shared limit 3     -> HELD #1
         look k                             -> A alone x1 #1 for 100",
    );
}

#[test]
fn b01_a_late_release_by_the_old_owner_touches_nobody() {
    check(
        "A acquire k 100    -> #1
         @150
         B acquire k 5000   -> #2
         A release k        -> null
         A release k all    -> null
         C acquire k 5000   -> null
         look k             -> B alone x1 #2 for 5000",
    );
}

#[test]
fn b03_renew_by_the_old_owner_is_refused() {
    check(
        "A acquire k 300    -> #1
         @500
         B acquire k 300    -> #2
         A renew k 10000    -> null
         look k             -> B alone x1 #2 for 300",
    );
}

#[test]
fn b04_nothing_revives_a_lease_that_has_ended() {
    check(
        "A acquire k 50         -> #1
         @100!
         A renew k 5000         -> null
         look k                 -> free
         A reenter k 50 hold 2  -> null
         A release k            -> null
         A downgrade k          -> null
         A fence k 7            -> null
         A acquire k 50         -> #2
         del k
         A renew k 5000         -> null
         A reenter k 5 hold 2   -> null
         look k                 -> free
         A acquire k 50         -> #3",
    );
}

#[test]
fn a_lease_ends_at_its_deadline_and_not_before() {
    check(
        "A acquire k 100    -> #1
         @99!
         B acquire k 100    -> null
         A renew k 1        -> #1
         @100!
         A renew k 1        -> null
         B acquire k 100    -> #2",
    );
}

#[test]
fn renew_alone_can_shorten_a_lease() {
    check(
        "A acquire k 100    -> #1
         A renew k 10       -> #1
         look k             -> A alone x1 #1 for 10
         A reenter k 5      -> x2 #1
         look k             -> A alone x2 #1 for 10
         A reenter k 50     -> x3 #1
         look k             -> A alone x3 #1 for 50
         A release k        -> 2
         look k             -> A alone x2 #1 for 50",
    );
}

#[test]
fn reenter_takes_a_free_lock_and_counts() {
    check(
        "A reenter k 100    -> #1
         A reenter k 100    -> x2 #1
         B reenter k 100    -> null
         A release k        -> 1
         A release k        -> 0
         A release k        -> null",
    );
}

#[test]
fn b23_a_hold_that_is_sent_again_is_not_counted_twice() {
    check(
        "A reenter k 100 hold 1     -> #1
         A reenter k 100 hold 1     -> #1
         A reenter k 100 hold 2     -> x2 #1
         A reenter k 100 hold 2     -> x2 #1
         A reenter k 100 hold 1     -> HOLD x2
         A reenter k 100 hold 4     -> HOLD x2
         B reenter k 100 hold 2     -> null
         B reenter k 100 hold 2 wait ever -> null
         look k                     -> A alone x2 #1 for 100",
    );
}

#[test]
fn a_hold_that_is_sent_again_has_its_lease_made_longer_like_any_other() {
    check(
        "A reenter k 100 hold 1     -> #1
         @60
         A reenter k 100 hold 1     -> #1
         look k                     -> A alone x1 #1 for 100",
    );
}

#[test]
fn a_release_that_is_sent_again_is_not_counted_twice() {
    check(
        "A reenter k 100        -> #1
         A reenter k 100        -> x2 #1
         A reenter k 100        -> x3 #1
         A release k hold 3     -> 2
         A release k hold 3     -> 2
         A release k hold 1     -> HOLD x2
         A release k hold 4     -> HOLD x2
         A release k hold 2     -> 1
         A release k hold 1     -> 0
         A release k hold 1     -> null
         look k                 -> free",
    );
}

#[test]
fn release_all_gives_back_every_hold() {
    check(
        "A reenter k 100            -> #1
         A reenter k 100            -> x2 #1
         B acquire k 100 wait ever  -> waits
         A release k all            -> 0, B: #2
         stream                     -> k A granted, k A reentered, k A released, k B granted",
    );
}

#[test]
fn release_all_withdraws_the_waiting_request() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         B release k all            -> null, B: null
         look k                     -> A alone x1 #1 for 100 | C
         B release k                -> null
         A release k                -> 0, C: #2",
    );
}

#[test]
fn release_all_withdraws_an_upgrade_and_lets_those_behind_it_pass() {
    check(
        "A acquire k 100 shared             -> #1
         B acquire k 100 shared             -> #2
         A reenter k 100 wait ever          -> waits
         C acquire k 100 shared wait ever   -> waits
         A release k all                    -> 0, A: null, C: #3
         look k                             -> B shared x1 #2 for 100 + C shared x1 #3 for 100",
    );
}

#[test]
fn b107_break_touches_only_the_grant_that_was_seen() {
    check(
        "A acquire k 100            -> #1
         break k B                  -> 0
         break k A 7                -> 0
         A release k                -> 0
         A acquire k 100            -> #2
         break k A 1                -> 0
         B acquire k 100 wait ever  -> waits
         break k A 2                -> 1, B: #3
         break k                    -> 1
         break k                    -> 0
         look k                     -> free",
    );
}

#[test]
fn break_revokes_all_of_a_crowd() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         C acquire k 100 wait ever  -> waits
         break k B                  -> 1
         break k                    -> 1, C: #3",
    );
}

#[test]
fn a_value_of_another_type_is_left_alone() {
    check(
        "set k
         A acquire k 100            -> WRONGTYPE
         A acquire k 100 wait ever  -> WRONGTYPE
         A reenter k 100 hold 2     -> WRONGTYPE
         A renew k 100              -> WRONGTYPE
         A release k                -> WRONGTYPE
         A release k all            -> WRONGTYPE
         A downgrade k              -> WRONGTYPE
         A fence k 1                -> WRONGTYPE
         break k                    -> WRONGTYPE
         look k                     -> foreign",
    );
}

#[test]
fn holds_are_counted_up_to_2_to_the_31_less_1() {
    check(
        "A acquire k 100                    -> #1
         count A k 2147483646
         A reenter k 100                    -> x2147483647 #1
         A reenter k 100                    -> HOLDSFULL
         A reenter k 100 hold 2147483647    -> x2147483647 #1
         A release k hold 2147483647        -> 2147483646
         A release k all                    -> 0",
    );
}

#[test]
fn b108_one_owner_holds_once() {
    check(
        "A acquire k 100            -> #1
         A acquire k 100 wait 50    -> HELD #1",
    );
}
