// Package hints says which worlds of the swarm are worth running for a planted
// bug: those whose plan has what the bug needs. Worlds are still drawn by
// their seeds alone, so that `lockstep sim run --seed N` repeats a kill.
package hints

import (
	"slices"
	"strings"

	"lockstep/sim"
	"lockstep/sim/simdisk"
)

// darkness is the power loss of all machines before the world is judged.
const darkness = "power-loss-at-end"

// Known says whether a hint means anything. A hint is the name of a fault, as
// fault tables have it but with dashes for spaces; power-loss-at-end; or
// several of these with | between, one of which is wanted.
func Known(hint string) bool {
	for _, name := range strings.Split(hint, "|") {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

var names = func() []string {
	list := []string{darkness}
	for _, kind := range []sim.FaultKind{sim.Kill, sim.PowerLoss, sim.CleanStop, sim.Pause, sim.DiskFull, sim.BitRot, sim.Reset,
		sim.Clog, sim.SlowNet, sim.WallJump} {
		list = append(list, dashed(kind.String()))
	}
	for e := 1; e < simdisk.NumEffects; e++ {
		list = append(list, dashed("disk "+simdisk.Effect(e).String()))
	}
	return list
}()

func dashed(s string) string { return strings.ReplaceAll(s, " ", "-") }

// Match says whether a plan has what all hints want.
func Match(p *sim.Plan, hints []string) bool {
	for _, hint := range hints {
		if !slices.ContainsFunc(strings.Split(hint, "|"), func(name string) bool { return has(p, name) }) {
			return false
		}
	}
	return true
}

func has(p *sim.Plan, name string) bool {
	if name == darkness {
		return p.PowerLossAtEnd
	}
	return slices.ContainsFunc(p.Faults, func(f sim.Fault) bool { return dashed(f.Name()) == name })
}
