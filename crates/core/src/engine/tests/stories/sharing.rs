//! Readers and writers, semaphores, upgrades and downgrades.

use super::check;

#[test]
fn readers_stand_together_and_a_writer_alone() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         C acquire k 100            -> null
         A release k                -> 0
         B release k                -> 0
         C acquire k 100            -> #3
         A acquire k 100 shared     -> null",
    );
}

#[test]
fn b18_each_reader_has_its_own_lease() {
    check(
        "A acquire k 5000 shared        -> #1
         B acquire k 300 shared         -> #2
         C acquire k 1000 wait 8000     -> waits
         @400
         look k                         -> A shared x1 #1 for 4600 | C
         @4999
         @5000                          -> C: #3
         stream                         -> k A granted, k B granted, k B lapsed, k A lapsed, k C granted",
    );
}

#[test]
fn b20_readers_are_admitted_together() {
    check(
        "W acquire k 100                    -> #1
         A acquire k 100 shared wait ever   -> waits
         B acquire k 100 shared wait ever   -> waits
         C acquire k 100 shared wait ever   -> waits
         V acquire k 100 wait ever          -> waits
         D acquire k 100 shared wait ever   -> waits
         W release k                        -> 0, A: #2, B: #3, C: #4
         A release k                        -> 0
         B release k                        -> 0
         C release k                        -> 0, V: #5
         V release k                        -> 0, D: #6",
    );
}

#[test]
fn a_new_reader_does_not_pass_a_waiting_writer() {
    check(
        "A acquire k 100 shared             -> #1
         W acquire k 100 wait ever          -> waits
         B acquire k 100 shared             -> null
         B acquire k 100 shared wait ever   -> waits
         A release k                        -> 0, W: #2
         W release k                        -> 0, B: #3",
    );
}

#[test]
fn a_limit_binds_those_who_stand_and_those_who_come() {
    check(
        "A acquire k 100 shared limit 2     -> #1
         B acquire k 100 shared             -> #2
         C acquire k 100 shared             -> null
         A release k                        -> 0
         C acquire k 100 shared             -> #3
         D acquire k 100 shared limit 2     -> null
         D acquire k 100 shared limit 3     -> #4
         A acquire k 100 shared             -> null
         A acquire k 100 shared limit 9     -> null
         D release k                        -> 0
         A acquire k 100 shared             -> #5",
    );
}

#[test]
fn a_limit_of_one_stands_alone_among_the_shared() {
    check(
        "A acquire k 100 shared limit 1     -> #1
         B acquire k 100 shared             -> null
         A release k                        -> 0
         B acquire k 100 shared             -> #2
         A acquire k 100 shared limit 1     -> null",
    );
}

#[test]
fn b38_a_semaphore_serves_its_line_in_order() {
    check(
        "A acquire k 100 shared limit 2             -> #1
         B acquire k 100 shared limit 2             -> #2
         C acquire k 100 shared limit 1 wait ever   -> waits
         D acquire k 100 shared limit 2 wait ever   -> waits
         A release k                                -> 0
         look k                                     -> B shared/2 x1 #2 for 100 | C | D
         B release k                                -> 0, C: #3
         C release k                                -> 0, D: #4",
    );
}

#[test]
fn b40_a_place_of_a_semaphore_comes_back_by_itself() {
    check(
        "A acquire k 50 shared limit 3              -> #1
         B acquire k 70 shared limit 3              -> #2
         C acquire k 90 shared limit 3              -> #3
         D acquire k 100 shared limit 3 wait ever   -> waits
         E acquire k 100 shared limit 3 wait ever   -> waits
         due                                        -> 50
         @50                                        -> D: #4
         @70                                        -> E: #5
         look k                                     -> C shared/3 x1 #3 for 20 + D shared/3 x1 #4 for 80 + E shared/3 x1 #5 for 100",
    );
}

#[test]
fn reentry_by_a_shared_holder_passes_the_line_and_keeps_its_mode() {
    check(
        "A acquire k 100 shared limit 2     -> #1
         W acquire k 100 wait ever          -> waits
         A reenter k 100 shared             -> x2 #1
         A reenter k 100 shared limit 7     -> x3 #1
         look k                             -> A shared/2 x3 #1 for 100 | W",
    );
}

#[test]
fn b21_by_an_exclusive_holder_a_shared_hold_is_one_more_still_exclusive() {
    check(
        "A acquire k 100            -> #1
         A reenter k 100 shared     -> x2 #1
         B acquire k 100 shared     -> null
         A release k                -> 1
         B acquire k 100 shared     -> null
         look k                     -> A alone x1 #1 for 100",
    );
}

#[test]
fn an_upgrade_alone_is_granted_with_a_new_fence() {
    check(
        "A acquire k 100 shared     -> #1
         A reenter k 100            -> x2 #2
         B acquire k 100 shared     -> null
         A release k                -> 1
         look k                     -> A alone x1 #2 for 100
         A downgrade k              -> #2
         look k                     -> A shared x1 #2 for 100
         stream                     -> k A granted, k A granted, k A released, k A downgraded",
    );
}

#[test]
fn an_upgrade_beside_others_is_null_or_waits_ahead_of_all() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         W acquire k 100 wait ever  -> waits
         A reenter k 100            -> null
         A reenter k 100 wait ever  -> waits
         look k                     -> A shared x1 #1 for 100 + B shared x1 #2 for 100 | A | W
         B release k                -> 0, A: x2 #3
         A release k all            -> 0, W: #4",
    );
}

#[test]
fn an_upgrade_alone_passes_the_line() {
    check(
        "A acquire k 100 shared     -> #1
         W acquire k 100 wait ever  -> waits
         A reenter k 100            -> x2 #2
         look k                     -> A alone x2 #2 for 100 | W",
    );
}

#[test]
fn a_second_waiting_upgrader_is_a_deadlock() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         A reenter k 100 wait ever  -> waits
         B reenter k 100 wait ever  -> DEADLOCK B A
         B reenter k 100            -> null
         B release k                -> 0, A: x2 #3",
    );
}

#[test]
fn an_upgrader_whose_shared_lease_ends_gets_null() {
    check(
        "A acquire k 50 shared      -> #1
         B acquire k 100 shared     -> #2
         A reenter k 100 wait ever  -> waits
         W acquire k 100 wait ever  -> waits
         @50                        -> A: null
         look k                     -> B shared x1 #2 for 50 | W",
    );
}

#[test]
fn an_upgrader_that_is_broken_or_releases_gets_null() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         A reenter k 100 wait ever  -> waits
         break k A                  -> 1, A: null
         A acquire k 100 shared     -> #3
         A reenter k 100 wait ever  -> waits
         A release k                -> 0, A: null
         look k                     -> B shared x1 #2 for 100",
    );
}

#[test]
fn an_upgrade_takes_over_its_own_place() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         A reenter k 100 wait ever  -> waits
         A reenter k 100 wait ever  -> waits, A: REPLACED
         B release k                -> 0, A: x2 #3",
    );
}

#[test]
fn an_upgrade_that_is_sent_again_is_known_by_its_hold() {
    check(
        "A acquire k 100 shared     -> #1
         A reenter k 100 hold 1     -> NOTUPGRADED
         A reenter k 100 hold 2     -> x2 #2
         A reenter k 100 hold 2     -> x2 #2
         look k                     -> A alone x2 #2 for 100",
    );
}

#[test]
fn an_upgrader_that_nests_meanwhile_is_told_that_its_hold_is_another() {
    check(
        "A acquire k 100 shared             -> #1
         B acquire k 100 shared             -> #2
         A reenter k 100 hold 2 wait ever   -> waits
         A reenter k 100 shared             -> x2 #1, A: NOTUPGRADED
         look k                             -> A shared x2 #1 for 100 + B shared x1 #2 for 100",
    );
}

#[test]
fn downgrade_lets_the_readers_at_the_head_join() {
    check(
        "A acquire k 100                    -> #1
         A reenter k 100                    -> x2 #1
         B acquire k 100 shared wait ever   -> waits
         C acquire k 100 shared wait ever   -> waits
         W acquire k 100 wait ever          -> waits
         D acquire k 100 shared wait ever   -> waits
         A downgrade k                      -> #1, B: #2, C: #3
         A downgrade k                      -> #1
         E downgrade k                      -> null
         look k                             -> A shared x2 #1 for 100 + B shared x1 #2 for 100 + C shared x1 #3 for 100 | W | D",
    );
}

#[test]
fn downgrade_does_not_pass_a_writer_at_the_head() {
    check(
        "A acquire k 100                    -> #1
         W acquire k 100 wait ever          -> waits
         B acquire k 100 shared wait ever   -> waits
         A downgrade k                      -> #1
         look k                             -> A shared x1 #1 for 100 | W | B",
    );
}

#[test]
fn the_writer_is_served_when_the_readers_ahead_of_it_have_left() {
    check(
        "A acquire k 100 shared             -> #1
         W acquire k 100 wait ever          -> waits
         @1
         B acquire k 100 shared wait ever   -> waits
         @2
         C acquire k 100 shared             -> null
         D acquire k 100 shared wait ever   -> waits
         @3
         A release k                        -> 0, W: #2",
    );
}

#[test]
fn a_crowd_becomes_one_holder_and_a_crowd_again() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 200 shared     -> #2
         @100!
         C acquire k 100 shared     -> #3
         B release k                -> 0
         look k                     -> C shared x1 #3 for 100
         C reenter k 100            -> x2 #4
         look k                     -> C alone x2 #4 for 100",
    );
}
