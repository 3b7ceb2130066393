//! What the server's own commands do to a lock.

use super::check;

#[test]
fn b98_a_deleted_lock_goes_to_the_next_waiter() {
    check(
        "A acquire k 100                -> #1
         B acquire k 100 wait ever      -> waits
         del k                          -> B: #2
         A renew k 100                  -> null
         A release k                    -> null
         look k                         -> B alone x1 #2 for 100",
    );
}

#[test]
fn b17_a_lock_that_is_overwritten_wakes_its_waiters_with_wrongtype() {
    check(
        "A acquire k 100                    -> #1
         B acquire k 100 wait ever          -> waits
         C acquire k 100 shared wait ever   -> waits
         D acquire k,l 100 wait ever        -> waits
         E acquire l 100 wait ever          -> waits
         set k                              -> B: WRONGTYPE, C: WRONGTYPE, D: WRONGTYPE, E: #2
         A renew k 100                      -> WRONGTYPE",
    );
}

#[test]
fn b84_waiters_for_a_key_that_another_node_serves_are_told() {
    check(
        "A acquire k 100 shared             -> #1
         B acquire k 100 shared             -> #2
         A reenter k 100 wait ever          -> waits
         C acquire k 100 wait ever          -> waits
         D acquire k,l 100 wait ever        -> waits
         E acquire l 100 wait ever          -> waits
         move k                             -> A: ELSEWHERE, C: ELSEWHERE, D: ELSEWHERE, E: #3
         A renew k 100                      -> ELSEWHERE
         A release k                        -> ELSEWHERE
         A acquire k 100                    -> ELSEWHERE
         break k                            -> ELSEWHERE",
    );
}

#[test]
fn an_upgrader_whose_lock_is_overwritten_is_told_why() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         A reenter k 100 wait ever  -> waits
         set k                      -> A: WRONGTYPE",
    );
}

#[test]
fn an_upgrader_whose_lock_is_deleted_gets_null() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 100 shared     -> #2
         A reenter k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         del k                      -> A: null, C: #3",
    );
}

#[test]
fn b98_a_flush_serves_every_line() {
    check(
        "A acquire k 100                -> #1
         A acquire 1:l 100              -> #2
         B acquire k 100 wait ever      -> waits
         C acquire 1:l 100 wait ever    -> waits
         D acquire k,1:l 100 wait ever  -> waits
         flush                          -> B: #3, C: #4
         B release k                    -> 0
         C release 1:l                  -> 0, D: #5",
    );
}

#[test]
fn b96_a_lock_that_is_renamed_keeps_its_holder() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         X acquire l 100            -> #2
         C acquire l 100 wait ever  -> waits
         rename k l                 -> B: #3
         A renew l 100              -> #1
         X renew l 100              -> null
         X release l                -> null
         look l                     -> A alone x1 #1 for 100 | C
         A release l                -> 0, C: #4",
    );
}

#[test]
fn b95_waiters_are_judged_by_what_their_database_holds_now() {
    check(
        "A acquire k 100            -> #1
         B acquire k 100 wait ever  -> waits
         swap                       -> B: #2
         look 1:k                   -> A alone x1 #1 for 100
         A release 1:k              -> 0
         X acquire 1:k 50           -> #3
         C acquire k 100 wait ever  -> waits
         swap
         look k                     -> X alone x1 #3 for 50 | C
         due                        -> 50
         @50                        -> C: #4",
    );
}

#[test]
fn the_lock_of_one_who_waits_for_it_arrives() {
    check(
        "A acquire k 100            -> #1
         B acquire l 100            -> #2
         B acquire k 100 wait ever  -> waits
         rename l k                 -> B: HELD #2
         look k                     -> B alone x1 #2 for 100",
    );
}

#[test]
fn a_mirror_that_was_set_wrong_is_set_right() {
    check(
        "A acquire k 100 shared     -> #1
         B acquire k 200 shared     -> #2
         mirror k
         stream                     -> k A granted, k B granted, k B mirrored
         @200
         mirror k
         stream                     -> k A lapsed, k B lapsed",
    );
}

#[test]
fn what_happened_to_a_connection_comes_before_the_next_request() {
    // The shell's events only leave notes; here the note of a closed connection and a request come together.
    check(
        "A acquire k 100 session 7  -> #1
         B acquire k 100 wait ever  -> waits
         close 7                    -> B: #2
         A renew k 100              -> null",
    );
}
