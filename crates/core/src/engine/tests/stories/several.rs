//! Several keys at once: all or none, one place in line.

use super::check;

#[test]
fn b43_all_or_none() {
    check(
        "B acquire y 100        -> #1
         A acquire x,y 100      -> null
         look x                 -> free
         B release y            -> 0
         A acquire x,y 100      -> #2
         look x                 -> A alone x1 #2 for 100
         look y                 -> A alone x1 #2 for 100
         stream                 -> y B granted, y B released, x A granted, y A granted",
    );
}

#[test]
fn whoever_holds_any_of_the_keys_is_told() {
    check(
        "A acquire y 100                -> #1
         A acquire x,y 100              -> HELD #1
         A acquire x,y 100 wait ever    -> HELD #1
         look x                         -> free",
    );
}

#[test]
fn a_mistake_at_one_key_comes_before_a_refusal_at_another() {
    check(
        "B acquire x 100            -> #1
         set y
         A acquire x,y 100          -> WRONGTYPE
         A acquire x,y 100 wait 5   -> WRONGTYPE
         del y
         A acquire y 100            -> #2
         A acquire x,y 100          -> HELD #2",
    );
}

#[test]
fn a_wait_for_several_holds_nothing_meanwhile_and_nobody_passes_it() {
    check(
        "B acquire y 100                -> #1
         A acquire x,y 100 wait ever    -> waits
         look x                         -> free | A
         C acquire x 100                -> null
         C acquire x 100 shared         -> null
         C acquire x 100 wait ever      -> waits
         look x                         -> free | A | C
         B release y                    -> 0, A: #2
         look x                         -> A alone x1 #2 for 100 | C
         A release x                    -> 0, C: #3
         look y                         -> A alone x1 #2 for 100",
    );
}

#[test]
fn it_passes_nobody_either() {
    check(
        "B acquire y 100                -> #1
         C acquire y 100 wait ever      -> waits
         A acquire x,y 100 wait ever    -> waits
         B release y                    -> 0, C: #2
         look x                         -> free | A
         C release y                    -> 0, A: #3",
    );
}

#[test]
fn when_it_leaves_those_behind_it_pass_in_all_its_lines() {
    check(
        "B acquire y 100                -> #1
         A acquire x,y,z 100 wait 50    -> waits
         C acquire x 100 wait ever      -> waits
         D acquire z 100 wait ever      -> waits
         @50                            -> A: null, C: #2, D: #3
         look x                         -> C alone x1 #2 for 100",
    );
}

#[test]
fn a_grant_lets_go_of_chains_of_lines() {
    check(
        "A acquire a 100                -> #1
         B acquire a,b 100 wait ever    -> waits
         C acquire b,c 100 wait ever    -> waits
         D acquire c 100 wait ever      -> waits
         look c                         -> free | C | D
         A release a                    -> 0, B: #2
         B release b                    -> 0, C: #3
         C release c                    -> 0, D: #4
         look b                         -> C alone x1 #3 for 100",
    );
}

#[test]
fn several_leases_are_one_but_each_key_is_released_for_itself() {
    check(
        "A acquire x,y 100      -> #1
         A release x            -> 0
         A renew y 200          -> #1
         B acquire x 100        -> #2
         A release x            -> null
         A release y            -> 0
         look x                 -> B alone x1 #2 for 100",
    );
}

#[test]
fn it_waits_for_the_last_of_its_keys() {
    check(
        "A acquire x 50                 -> #1
         B acquire y 80                 -> #2
         C acquire y,x 100 wait ever    -> waits
         due                            -> 50
         @50
         due                            -> 80
         @80                            -> C: #3
         look x                         -> C alone x1 #3 for 100",
    );
}

#[test]
fn opposite_orders_are_one_line() {
    check(
        "A acquire x,y 100              -> #1
         B acquire y,x 100 wait ever    -> waits
         A release x                    -> 0
         A acquire x,y 100 wait ever    -> HELD #1
         A release y                    -> 0, B: #2
         A acquire x,y 100 wait ever    -> waits
         B release y                    -> 0
         B release x                    -> 0, A: #3",
    );
}

#[test]
fn the_same_keys_in_another_order_are_the_same_request() {
    check(
        "B acquire y 100                -> #1
         A acquire x,y 100 wait ever    -> waits
         A acquire y,x 100 wait ever    -> waits, A: REPLACED
         A acquire x 100 wait ever      -> WAITS
         A acquire x,z 100 wait ever    -> WAITS
         A acquire z 100 wait ever      -> #2
         B release y                    -> 0, A: #3",
    );
}

#[test]
fn a_circle_through_several_keys() {
    check(
        "A acquire a 100                -> #1
         B acquire b 100                -> #2
         A acquire b,c 100 wait ever    -> waits
         C acquire c 100 wait ever      -> waits
         B acquire a 100 wait ever      -> DEADLOCK B A
         B acquire c 100 wait ever      -> DEADLOCK B A
         B release b                    -> 0, A: #3",
    );
}

#[test]
fn one_who_waits_for_several_holds_nothing_and_closes_no_circle() {
    check(
        "A acquire a 100                -> #1
         B acquire b 100                -> #2
         C acquire a,b 100 wait ever    -> waits
         D acquire b,a 100 wait ever    -> waits
         B release b                    -> 0
         A release a                    -> 0, C: #3
         C release a                    -> 0
         C release b                    -> 0, D: #4",
    );
}

#[test]
fn release_all_withdraws_a_wait_for_several() {
    check(
        "B acquire y 100                -> #1
         A acquire x,y 100 wait ever    -> waits
         C acquire x 100 wait ever      -> waits
         A release y all                -> null, A: null, C: #2
         look y                         -> B alone x1 #1 for 100",
    );
}
