// Command museum plants historic bugs in the product, one at a time, and shows
// that the simulator finds each.
//
// Every file in entries/ is one exhibit: what went wrong, where it happened, what it
// breaks, and the replacement of a few lines of today's source that brings it
// back. The replacement is applied through a build overlay (go build
// -overlay), so that the product's code carries none of them. An exhibit
// whose lines no longer match the source exactly once fails the tests: a guard
// that moves takes its exhibit along, or says why the bug cannot come back.
//
//	go run ./sim/museum                     every exhibit: worlds until the first kill
//	go run ./sim/museum -run A14,C01 -for 60s
//	go run ./sim/museum -list               what there is
//	go run ./sim/museum -build              only: does every exhibit compile
//
// For each exhibit it prints the oracle that killed it, how many seeds and
// seconds that took, and how long the shrunk plan is; the product as it is
// must pass the same seeds. It exits non-zero if an exhibit survives its time or
// the product fails.
//
// An exhibit that says why it is hidden from worlds names the test of its package that finds it, and that test is run with the bug.
//
// entry.go reads exhibits, overlay.go applies them, workshop.go builds and runs,
// main.go prints; internal/worker is the program that is built with the bug in it.
package main
