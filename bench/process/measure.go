package process

import (
	"slices"
	"time"
)

// Measure is what one run took: wall time, and the CPU time of the servers that it was timed with.
type Measure struct {
	Wall, CPU time.Duration
}

// Timed runs do and measures it, with the CPU time of the servers together, if there are any.
func Timed(do func() error, servers ...*Process) (m Measure, err error) {
	before, err := cpuOf(servers)
	if err != nil {
		return m, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return m, err
	}
	m.Wall = time.Since(begin)
	after, err := cpuOf(servers)
	m.CPU = after - before
	return m, err
}

func cpuOf(servers []*Process) (sum time.Duration, err error) {
	for _, p := range servers {
		used, err := p.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// Median is that of n values.
func Median(n int, of func(i int) float64) float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = of(i)
	}
	slices.Sort(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// Rate is the median rate of runs that moved so many bytes each, in MB/s.
func Rate(bytes int, of []Measure) float64 {
	return Median(len(of), func(i int) float64 { return float64(bytes) / 1e6 / of[i].Wall.Seconds() })
}

// CPUPerGB is the median CPU time of runs that moved so many bytes each, in seconds per GB.
func CPUPerGB(bytes int, of []Measure) float64 {
	return Median(len(of), func(i int) float64 { return of[i].CPU.Seconds() / float64(bytes) * 1e9 })
}

// Ratios returns how many times faster b was than a, and how much more CPU time it took: the medians over runs of both in turn.
func Ratios(a, b []Measure) (speed, cpu float64) {
	speed = Median(len(a), func(i int) float64 { return a[i].Wall.Seconds() / b[i].Wall.Seconds() })
	return speed, Median(len(a), func(i int) float64 { return b[i].CPU.Seconds() / max(a[i].CPU.Seconds(), 0.01) })
}
