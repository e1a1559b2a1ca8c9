package main

import (
	"os"
	"os/exec"

	"lockstep/bench/process"
)

// startPlain starts one of this program's own servers.
func startPlain(what, file string) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.Start(exec.Command(self, "-serve", what, "-file", file), func(line string) string { return line })
}
