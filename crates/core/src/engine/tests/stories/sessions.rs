//! Leases that end with a connection.

use super::check;

#[test]
fn b109_exactly_the_leases_of_the_connection_end() {
    check(
        "A acquire a 1000 session 7         -> #1
         A acquire a-lock-b 1000 session 8  -> #2
         B acquire c 1000 session 7         -> #3
         A acquire d 1000                   -> #4
         W acquire a 100 wait ever          -> waits
         close 7                            -> W: #5
         look a                             -> W alone x1 #5 for 100
         look a-lock-b                      -> A alone x1 #2 for 1000 tied
         look c                             -> free
         look d                             -> A alone x1 #4 for 1000
         tied                               -> 1",
    );
}

#[test]
fn the_ttl_stays_as_a_bound() {
    check(
        "A acquire k 100 session 7      -> #1
         @100!
         B acquire k 100                -> #2
         tied                           -> 0
         close 7
         look k                         -> B alone x1 #2 for 100",
    );
}

#[test]
fn the_last_command_with_session_decides() {
    check(
        "A reenter k 100 session 7      -> #1
         A renew k 100                  -> #1
         A renew k 100 session 8        -> #1
         close 7
         look k                         -> A alone x1 #1 for 100 tied
         A reenter k 100 session 9      -> x2 #1
         A reenter k 100                -> x3 #1
         A release k                    -> 2
         close 8
         look k                         -> A alone x2 #1 for 100 tied
         close 9
         look k                         -> free",
    );
}

#[test]
fn a_lease_can_be_tied_later() {
    check(
        "A acquire k 100                -> #1
         close 7
         A renew k 100 session 7        -> #1
         close 7
         look k                         -> free
         stream                         -> k A granted, k A renewed, k A closed",
    );
}

#[test]
fn a_release_unties() {
    check(
        "A acquire k 100 session 7      -> #1
         A release k                    -> 0
         tied                           -> 0
         A acquire k 100                -> #2
         close 7
         look k                         -> A alone x1 #2 for 100",
    );
}

#[test]
fn a_waiter_is_tied_by_its_grant_and_a_takeover_by_its_own_connection() {
    check(
        "A acquire k 100                        -> #1
         B acquire k 100 wait ever session 7    -> waits
         B acquire k 100 wait ever session 8    -> waits, B: REPLACED
         A release k                            -> 0, B: #2
         close 7
         look k                                 -> B alone x1 #2 for 100 tied
         close 8
         look k                                 -> free",
    );
}

#[test]
fn a_tie_goes_through_upgrade_and_downgrade() {
    check(
        "A acquire k 100 shared session 7   -> #1
         A reenter k 100                    -> x2 #2
         look k                             -> A alone x2 #2 for 100 tied
         A downgrade k                      -> #2
         A fence k 5                        -> #5
         look k                             -> A shared x2 #5 for 100 tied
         close 7
         look k                             -> free",
    );
}

#[test]
fn a_closed_connection_of_one_shared_holder_leaves_the_others() {
    check(
        "A acquire k 100 shared limit 2 session 7           -> #1
         B acquire k 100 shared limit 2 session 8           -> #2
         C acquire k 100 shared limit 2 wait ever           -> waits
         close 7                                            -> C: #3
         look k                                             -> B shared/2 x1 #2 for 100 tied + C shared/2 x1 #3 for 100",
    );
}

#[test]
fn all_leases_of_a_closed_connection_end_before_anyone_is_served() {
    check(
        "A acquire k 100 shared session 7   -> #1
         D acquire k 100 shared session 7   -> #2
         D reenter k 100 wait ever          -> waits
         W acquire k 100 wait ever          -> waits
         close 7                            -> D: null, W: #3
         stream                             -> k A granted, k D granted, k A closed, k D closed, k W granted",
    );
}

#[test]
fn b96_a_tie_follows_a_rename() {
    check(
        "A acquire k 100 session 7      -> #1
         rename k l
         look l                         -> A alone x1 #1 for 100 tied
         tied                           -> 1
         close 7
         look l                         -> free
         tied                           -> 0",
    );
}

#[test]
fn b95_a_tie_follows_a_swapped_database() {
    check(
        "A acquire k 100 session 7      -> #1
         B acquire 1:k 100 session 8    -> #2
         swap
         look 1:k                       -> A alone x1 #1 for 100 tied
         close 7
         look 1:k                       -> free
         look k                         -> B alone x1 #2 for 100 tied",
    );
}

#[test]
fn a_tie_follows_a_rename_and_a_swap_that_nobody_has_looked_at_yet() {
    check(
        "A acquire k 100 session 7      -> #1
         far k
         rename k kk
         swap
         close 7
         near
         look 1:kk                      -> free
         tied                           -> 0",
    );
}

#[test]
fn b42_a_tie_goes_with_a_lock_that_is_deleted() {
    check(
        "A acquire k 100 session 7      -> #1
         A acquire l 100 session 7      -> #2
         A acquire m 100 session 7      -> #3
         del k
         tied                           -> 2
         set l
         tied                           -> 1
         flush
         tied                           -> 0
         A acquire k 100                -> #4
         close 7
         look k                         -> A alone x1 #4 for 100",
    );
}

#[test]
fn a_server_that_decides_again_has_forgotten_the_ties() {
    check(
        "A acquire k 100 session 7      -> #1
         abdicate
         look k                         -> A alone x1 #1 for 100
         close 7
         look k                         -> A alone x1 #1 for 100
         A renew k 100                  -> #1
         close 7
         look k                         -> A alone x1 #1 for 100
         A renew k 100 session 7        -> #1
         look k                         -> A alone x1 #1 for 100 tied
         close 7
         look k                         -> free",
    );
}

#[test]
fn an_old_tie_is_made_anew_by_the_same_connection() {
    check(
        "A acquire k 100 session 7      -> #1
         abdicate
         A reenter k 100 session 7      -> x2 #1
         look k                         -> A alone x2 #1 for 100 tied",
    );
}

/// A step reaches some keys only: what is to be done at the others waits for one that reaches them.
#[test]
fn what_is_beyond_reach_is_done_later() {
    check(
        "
        A acquire k 100 session 7               -> #1
        A acquire l 100 session 7               -> #2
        B acquire l 100 wait ever               -> waits
        C acquire k 100 shared wait 5           -> waits
        D acquire k 100 wait ever               -> waits
        far l
        close 7                                 -> C: #3
        A renew k 100                           -> null
        near                                    -> B: #4
        @5                                      ->
        C release k                             -> 0, D: #5
        tied                                    -> 0
        stream -> k A granted, l A granted, k A closed, k C granted, l A closed, l B granted, k C released, k D granted
        ",
    );
    check(
        "
        A acquire l 100                         -> #1
        B acquire l 100 wait ever               -> waits
        far l
        del l                                   ->
        A acquire k 100                         -> #2
        near                                    -> B: #3
        rename l m                              ->
        far m
        mirror m                                ->
        look k                                  -> A alone x1 #2 for 100
        near                                    ->
        look m                                  -> B alone x1 #3 for 100
        stream -> l A granted, k A granted, l B granted, m B mirrored
        ",
    );
}
