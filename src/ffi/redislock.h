/* What this module is called by others: servers, other modules, tools that read dumps.
 *
 * A C module that wants to know whether a key is a lock compares the name of its type with REDISLOCK_TYPE; a tool
 * that reads dumps compares the encoding version. build.rs makes Rust constants of this file. */

#ifndef REDISLOCK_H
#define REDISLOCK_H

/* The module, as MODULE LIST shows it, and the prefix of its settings. */
#define REDISLOCK_MODULE "lock"

/* The version, as MODULE LIST shows it: major * 10000 + minor * 100 + patch. */
#define REDISLOCK_VERSION 100

/* The data type, as TYPE shows it: nine characters, as Redis asks for. */
#define REDISLOCK_TYPE "redislock"

/* The version of the type's encoding in RDB files and DUMP payloads. */
#define REDISLOCK_ENCODING 1

/* The command that carries records to replicas and into the AOF. */
#define REDISLOCK_APPLY "LOCK.APPLY"

/* The ACL category of all commands, on servers that know categories for modules. */
#define REDISLOCK_CATEGORY "lock"

#endif
