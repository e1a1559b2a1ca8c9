package core_test

// rejectedRanges are ranges over maps whose outcome depends on the order.
var rejectedRanges = []snippet{
	{"calls", "map range", "calls g", `func g(int) {}
		func f(m map[int]int) {
			for k := range m { // BAD
				g(k)
			}
		}`},
	{"calls in a condition", "map range", "calls g", `func g(int) bool { return true }
		func f(m map[int]int) {
			for k := range m { // BAD
				if g(k) {
					delete(m, k)
				}
			}
		}`},
	{"calls a method", "map range", "calls e.add", `type effects struct{ list []int }
		func (e *effects) add(i int) { e.list = append(e.list, i) }
		func f(m map[int]int, e *effects) {
			for _, v := range m { // BAD
				e.add(v)
			}
		}`},
	{"appends", "map range", "not sorted", `func f(m map[int]int) (s []int) {
			for k := range m { // BAD
				s = append(s, k)
			}
			return s
		}`},
	{"sorts too late", "map range", "not sorted", `func f(m map[int]int) (s []int, first int) {
			for k := range m { // BAD
				s = append(s, k)
			}
			first = s[0]
			slices.Sort(s)
			return s, first
		}`},
	{"sorts another", "map range", "not sorted", `func f(m map[int]int, t []int) (s []int) {
			for k := range m { // BAD
				s = append(s, k)
			}
			slices.Sort(t)
			return s
		}`},
	{"values by a comparator that ties", "map range", "other elements than keys", `type v struct{ a, b int }
		func f(m map[int]v) (s []v) {
			for _, x := range m { // BAD
				s = append(s, x)
			}
			slices.SortFunc(s, func(x, y v) int { return cmp.Compare(x.a, y.a) })
			return s
		}`},
	{"structs sorted by what is not the key", "map range", "other elements than keys", `type e struct{ k, v int }
		func f(m map[int]int) (s []e) {
			for k, v := range m { // BAD
				s = append(s, e{k, v})
			}
			slices.SortFunc(s, func(x, y e) int { return cmp.Compare(x.v, y.v) })
			return s
		}`},
	{"structs sorted by what has the key's name", "map range", "other elements than keys", `type v struct{ k int }
		type e struct { k int; v v }
		func f(m map[int]v) (s []e) {
			for k, v := range m { // BAD
				s = append(s, e{k, v})
			}
			slices.SortFunc(s, func(x, y e) int { return cmp.Compare(x.v.k, y.v.k) })
			return s
		}`},
	{"two structs a key", "map range", "other elements than keys", `type e struct{ k, v int }
		func f(m map[int]int) (s []e) {
			for k, v := range m { // BAD
				s = append(s, e{k, v})
				s = append(s, e{k, v + 1})
			}
			slices.SortFunc(s, func(x, y e) int { return cmp.Compare(x.k, y.k) })
			return s
		}`},
	{"appends what it appended to", "map range", "changed and read", `func f(m map[int]int) (s []int) {
			for range m { // BAD
				s = append(s, len(s))
			}
			slices.Sort(s)
			return s
		}`},
	{"first found", "map range", "came first", `func f(m map[int]int) int {
			for k := range m { // BAD
				return k
			}
			return 0
		}`},
	{"one of two returns", "map range", "comes first", `func f(m map[int]int) bool {
			for k := range m { // BAD
				if k > 3 {
					return true
				}
				if k > 2 {
					return false
				}
			}
			return false
		}`},
	{"returns after counting", "map range", "in the middle", `func f(m map[int]int, n *int) bool {
			for _, v := range m { // BAD
				*n += v
				if v > 3 {
					return true
				}
			}
			return false
		}`},
	{"break", "map range", "break ends", `func f(m map[int]int) (n int) {
			for range m { // BAD
				n++
				break
			}
			return n
		}`},
	{"labeled continue", "map range", "continue ends", `func f(m map[int]int) {
		outer:
			for range 3 {
				for range m { // BAD
					continue outer
				}
			}
		}`},
	{"goto", "map range", "goto ends", `func f(m map[int]int) {
			for range m { // BAD
				goto end
			}
		end:
		}`},
	{"last wins", "map range", "what is set last stays", `func f(m map[int]int) (last int) {
			for k := range m { // BAD
				last = k
			}
			return last
		}`},
	{"arg max", "map range", "", `func f(m map[int]int) (best int) {
			for k, v := range m { // BAD
				if v > m[best] {
					best = k
				}
			}
			return best
		}`},
	{"key stays", "map range", "stays after the loop", `func f(m map[int]int) (k int) {
			for k = range m { // BAD
			}
			return k
		}`},
	{"two constants", "map range", "two ways", `func f(m map[int]int) (s string) {
			for _, v := range m { // BAD
				if v > 0 {
					s = "positive"
				} else {
					s = "negative"
				}
			}
			return s
		}`},
	{"sum and product", "map range", "two ways", `func f(m map[int]int) (n int) {
			for _, v := range m { // BAD
				n += v
				n *= 2
			}
			return n
		}`},
	{"count and reset", "map range", "two ways", `func f(m map[int]int) (n int) {
			for _, v := range m { // BAD
				n++
				if v == 0 {
					n = 0
				}
			}
			return n
		}`},
	{"filled and dropped", "map range", "two ways", `func f(m, n map[int]int) map[int]int {
			for k, v := range m { // BAD
				n[k] = v
				if v == 0 {
					n = nil
				}
			}
			return n
		}`},
	{"a whole and its part", "map range", "two ways", `type t struct{ n int }
		func f(m map[int]int, s struct{ p *t }) {
			for _, v := range m { // BAD
				s.p.n += v
				if v == 0 {
					s.p = nil
				}
			}
		}`},
	{"division", "map range", "depends on the order", `func f(m map[int]int) int {
			n := 100
			for _, v := range m { // BAD
				n /= v
			}
			return n
		}`},
	{"sum of floats", "map range", "integers", `func f(m map[int]float64) (n float64) {
			for _, v := range m { // BAD
				n += v
			}
			return n
		}`},
	{"joined strings", "map range", "integers", `func f(m map[string]int) (s string) {
			for k := range m { // BAD
				s += k
			}
			return s
		}`},
	{"numbers by arrival", "map range", "changed and read", `func f(m map[string]int) map[string]int {
			ids, n := map[string]int{}, 0
			for k := range m { // BAD
				ids[k] = n
				n++
			}
			return ids
		}`},
	{"as many as fit", "map range", "changed and read", `func f(m map[int]int, room int) (n int) {
			for k := range m { // BAD
				if n < room {
					delete(m, k)
					n++
				}
			}
			return n
		}`},
	{"until small enough", "map range", "changed and read", `func f(m map[int]int) {
			for k := range m { // BAD
				if len(m) > 10 {
					delete(m, k)
				}
			}
		}`},
	{"set by another key", "map range", "what is set last stays", `func f(m map[int]string) map[string]int {
			inverse := map[string]int{}
			for k, v := range m { // BAD
				inverse[v] = k
			}
			return inverse
		}`},
	{"deleted by another key", "map range", "another key", `func f(m map[int]int) {
			for _, v := range m { // BAD
				delete(m, v)
			}
		}`},
	{"set by key in an inner loop", "map range", "what is set last stays", `func f(m map[int][]int, n map[int]int) {
			for k, v := range m { // BAD
				for _, x := range v {
					n[k] = x
				}
			}
		}`},
	{"the key is changed", "map range", "loop's key", `func f(m, n map[int]int) {
			for k := range m { // BAD
				k /= 2
				n[k] = 1
			}
		}`},
	{"through a pointer", "map range", "what is set last stays", `func f(m map[int]*struct{ n []int }) {
			for k, v := range m { // BAD
				v.n[0] = k
			}
		}`},
	{"through a value", "map range", "what is set last stays", `func f(m map[int]*struct{ n int }) {
			for k, v := range m { // BAD
				v.n = k
			}
		}`},
	{"makes functions", "map range", "makes a function", `func f(m map[int]int) (s map[int]func() int) {
			s = map[int]func() int{}
			for k := range m { // BAD
				s[k] = func() int { return k }
			}
			return s
		}`},
	{"defers", "map range", "more than", `func f(m map[int]func()) {
			for _, v := range m { // BAD
				defer v()
			}
		}`},
	{"yields", "map range", "calls yield", `func f(m map[int]int) iter.Seq[int] {
			return func(yield func(int) bool) {
				for k := range m { // BAD
					if !yield(k) {
						return
					}
				}
			}
		}`},
	{"a named map", "map range", "calls g", `type set map[string]bool
		func g(string) {}
		func (s set) f() {
			for k := range s { // BAD
				g(k)
			}
		}`},
	{"a map by type parameter", "map range", "calls g", `func g(int) {}
		func f[M ~map[int]V, V any](m M) {
			for k := range m { // BAD
				g(k)
			}
		}`},
	{"a map in a case", "map range", "calls g", `func g(int) {}
		func f(n int, m map[int]int) {
			switch n {
			case 1:
			loop:
				for k := range m { // BAD
					g(k)
					continue loop
				}
			}
		}`},
	{"a map in a map", "map range", "", `func f(m map[int]map[int]int) (last int) {
			for _, inner := range m { // BAD
				for k := range inner { // BAD
					last = k
				}
			}
			return last
		}`},
	{"in init", "map range", "what is set last stays", `var last int
		func init() {
			for k := range map[int]int{1: 1, 2: 2} { // BAD
				last = k
			}
		}`},
}

// acceptedRanges are ranges over maps that come out the same in every order.
var acceptedRanges = []snippet{
	{name: "deletes", src: `type b struct { parked map[int]int64; now int64 }
		func (b *b) f() {
			for k, until := range b.parked {
				if until <= b.now {
					delete(b.parked, k)
				}
			}
		}`},
	{name: "deletes from others", src: `func f(m, n map[int]int) {
			for k := range m {
				delete(n, k)
			}
		}`},
	{name: "fills by key", src: `type v struct{ a, b int }
		func f(m map[string]*v) map[string]v {
			out := make(map[string]v, len(m))
			for k, x := range m {
				if x == nil || strings.HasPrefix(k, "_") {
					continue
				}
				doubled := 2 * x.a
				doubled++
				out[k] = v{a: doubled, b: int(x.b)}
			}
			return out
		}`},
	{name: "counts by key", src: `func f(m, n map[int]int) {
			for k, v := range m {
				n[k] += v
				n[k]++
			}
		}`},
	{name: "counts and sums", src: `type s struct{ size, n int; bits uint }
		func (s *s) f(m map[int]uint) (most uint, any, all bool) {
			all = true
			for _, v := range m {
				s.n++
				s.size += int(v)
				s.size -= 3
				s.bits |= v
				most = max(most, v, 7)
				any = any || v > 3
				all = all && v < 9
			}
			return most, any, all
		}`},
	{name: "finds", src: `func f(m map[int]error) error {
			for k, v := range m {
				if k > 3 && v == nil {
					return nil
				}
			}
			return fmt.Errorf("none")
		}`},
	{name: "flags", src: `func f(m map[int]int) (odd bool) {
			for _, v := range m {
				switch {
				case v%2 == 1:
					odd = true
				case v > 5:
					break
				}
			}
			return odd
		}`},
	{name: "inner loops", src: `func f(m map[int][]int) (n int) {
			for _, v := range m {
				for i := 0; i < len(v); i++ {
					if v[i] == 0 {
						break
					}
					n += v[i]
				}
				for _, x := range v {
					n += x
				}
			}
			return n
		}`},
	{name: "collects keys", src: `type id [16]byte
		func compare(a, b id) int { return bytes.Compare(a[:], b[:]) }
		func f(m map[id]int) []id {
			s := make([]id, 0, len(m))
			for k, v := range m {
				if v > 0 {
					s = append(s, k)
				}
			}
			slices.SortFunc(s, compare)
			return s
		}`},
	{name: "collects keys and values", src: `func f(m map[string]int) ([]string, []int) {
			var s []string
			var t []int
			for k, v := range m {
				s = append(s, k)
				t = append(t, v, v+1)
			}
			slices.Sort(t)
			sort.Strings(s)
			return s, t
		}`},
	{name: "collects structs by key", src: `type name struct{ s string }
		func (n name) Compare(o name) int { return strings.Compare(n.s, o.s) }
		type e struct{ k name; v int }
		func f(m map[name]int) ([]e, []*e) {
			var s []e
			var t []*e
			for k, v := range m {
				s = append(s, e{k, v})
				t = append(t, &e{v: v, k: k})
			}
			slices.SortFunc(s, func(a, b e) int { return a.k.Compare(b.k) })
			slices.SortFunc(t, func(a, b *e) int { return a.k.Compare(b.k) })
			return s, t
		}`},
}
