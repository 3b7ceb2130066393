//! Tokens only rise.

use super::check;

#[test]
fn a_token_is_above_the_last_and_no_lower_than_the_clock() {
    check(
        "wall 5000
         A acquire a 100    -> #5000
         A acquire b 100    -> #5001
         wall 4000
         A acquire c 100    -> #5002
         wall 9000
         A acquire d 100    -> #9000",
    );
}

#[test]
fn a_token_stays_through_reentry_and_renewal() {
    check(
        "A acquire k 100    -> #1
         B acquire l 100    -> #2
         A reenter k 100    -> x2 #1
         A renew k 100      -> #1
         A downgrade k      -> #1",
    );
}

#[test]
fn b93_a_token_that_was_seen_elsewhere_is_passed() {
    check(
        "saw 100
         A acquire k 100    -> #101
         saw 50
         B acquire l 100    -> #102",
    );
}

#[test]
fn fence_raises_the_holder_and_the_counter() {
    check(
        "A acquire k 100    -> #1
         A fence k 50       -> #50
         A fence k 20       -> #50
         B fence k 90       -> null
         look k             -> A alone x1 #50 for 100
         A acquire k 100    -> HELD #50
         B acquire l 100    -> #51
         stream             -> k A granted, k A fenced, l B granted",
    );
}

#[test]
fn fence_goes_no_further_than_366_days_ahead_of_the_clock() {
    check(
        "wall 1000
         A acquire k 100            -> #1000
         A fence k 31622400001001   -> AHEAD of #31622400001000
         look k                     -> A alone x1 #1000 for 100
         A fence k 31622400001000   -> #31622400001000
         A fence k 31622400001001   -> AHEAD of #31622400001000",
    );
}

#[test]
fn a_token_that_the_counter_has_passed_is_always_accepted() {
    check(
        "A acquire k 100            -> #1
         saw 9007199254740000
         A fence k 9007199254740000 -> #9007199254740000
         A fence k 9007199254740001 -> AHEAD of #9007199254740000",
    );
}

#[test]
fn no_tokens_are_left_below_2_to_the_53() {
    check(
        "saw 9007199254740990
         A acquire k 100            -> #9007199254740991
         B acquire l 100            -> EXHAUSTED
         look l                     -> free
         A reenter k 100            -> x2 #9007199254740991
         A renew k 100              -> #9007199254740991
         B acquire k 100 wait ever  -> waits
         C acquire k 100 wait ever  -> waits
         A release k all            -> 0, B: EXHAUSTED, C: EXHAUSTED
         look k                     -> free",
    );
}

#[test]
fn an_upgrade_without_tokens_leaves_the_holder_shared() {
    check(
        "saw 9007199254740990
         A acquire k 100 shared     -> #9007199254740991
         A reenter k 100            -> EXHAUSTED
         look k                     -> A shared x1 #9007199254740991 for 100",
    );
}

#[test]
fn a_clock_beyond_all_tokens_exhausts_them() {
    check(
        "wall 9007199254740992
         A acquire k 100    -> EXHAUSTED",
    );
}
