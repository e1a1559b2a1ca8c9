// Package node is the production host of a broker: it steps the core and moves
// the bytes that the core only speaks of.
//
// One goroutine steps the core (loop.go). Everything heavy is beside it: frames
// are decoded and batches checked on their connection's goroutine (client.go),
// answers are encoded and their spans of segment files sent on another one of
// the connection (answer.go), the effects on a log are carried out in order by
// workers, and those on different logs at once (storage.go, logops.go), one
// goroutine commits what many appends wrote with one sync (syncer.go), and each
// peer has its own connection (peers.go). Results come back through the inbox.
//
// What it promises: effects on one log happen in the order in which the core
// emitted them; a request's bytes stay where they are until all that refers to
// them is written or dropped; a failed sync is the end (rule 13); a clean stop
// leaves its mark only when everything is synced.
//
// It may import everything but sim and cmd.
package node
