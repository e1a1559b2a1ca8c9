package core_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// snippet is a piece of a file under core/. The lines on which something is to
// be found end with "// BAD"; imports of the standard library are added.
type snippet struct {
	name string
	rule string // of all that is found
	text string // that the finding says
	src  string
}

var rejected = []snippet{
	{"files", "import", "add an effect", `import "os" // BAD
		func f() { os.Remove("x") }`},
	{"file modes", "import", "add an effect", `import "io/fs" // BAD
		var m fs.FileMode`},
	{"buffered input", "import", "lists", `import "bufio" // BAD
		var r bufio.Reader`},
	{"io", "import", "add an effect", `import "io" // BAD
		var eof = io.EOF`},
	{"sockets", "import", "Call", `import "net" // BAD
		func f(c net.Conn) { c.Close() }`},
	{"http", "import", "Call", `import "net/http" // BAD
		var c http.Client`},
	{"locks", "import", "nothing to lock", `import "sync" // BAD
		type t struct{ mu sync.Mutex }`},
	{"atomics", "import", "nothing to lock", `import "sync/atomic" // BAD
		var n atomic.Int64`},
	{"contexts", "import", "core.Time", `import "context" // BAD
		func f(ctx context.Context) {}`},
	{"randomness", "import", "core.Rand", `import "math/rand" // BAD
		func f() int { return rand.Int() }`},
	{"seeded randomness", "import", "core.Rand", `import "math/rand/v2" // BAD
		func f() int { return rand.Int() }`},
	{"system randomness", "import", "core.Rand", `import "crypto/rand" // BAD
		func f(b []byte) { rand.Read(b) }`},
	{"seeded hashes", "import", "seed is random", `import "hash/maphash" // BAD
		var h maphash.Hash`},
	{"logging", "import", "Log effect", `import "log/slog" // BAD
		func f() { slog.Info("x") }`},
	{"runtime", "import", "machine", `import "runtime" // BAD
		var n = runtime.NumCPU()`},
	{"syscalls", "import", "add an effect", `import "syscall" // BAD
		var n = syscall.Getpid()`},
	{"unsafe", "import", "addresses", `import "unsafe" // BAD
		func f(p *int) uintptr { return uintptr(unsafe.Pointer(p)) }`},
	{"reflection", "import", "plain types", `import "reflect" // BAD
		func f(v any) []reflect.Value { return reflect.ValueOf(v).MapKeys() }`},
	{"gob", "import", "encoding/binary", `import "encoding/gob" // BAD
		var e gob.Encoder`},
	{"C", "import", "only Go", `import "C" // BAD`},
	{"a host's package", "import", "outside core", `import "lockstep/disk" // BAD
		var x disk.FS`},
	{"the compressors", "import", "outside core", `import "lockstep/compress" // BAD
		var x compress.Codecs`},
	{"a package like core", "import", "outside core", `import "lockstep/corelike" // BAD
		var x corelike.T`},
	{"another library", "import", "imports only", `import "github.com/twmb/franz-go/pkg/kerr" // BAD
		var x = kerr.UnknownTopicOrPartition`},
	{"under a name", "import", "nothing to lock", `import time "sync" // BAD
		type t struct{ mu time.Mutex }`},
	{"for its effects", "import", "Call", `import _ "net" // BAD`},

	{"goroutine", "go", "effect", `func f() {
			go f() // BAD
		}`},
	{"select", "select", "effect", `func f() {
			select {} // BAD
		}`},
	{"channel type", "chan", "effect", `type t struct {
			c chan int // BAD
		}`},
	{"channel", "chan", "effect", `func f() any {
			return make(chan struct{}) // BAD
		}`},
	{"channel as argument", "chan", "effect", `func f(
			c <-chan int, // BAD
		) {
			for range c { // BAD
			}
			<-c // BAD
		}`},
	{"send", "chan", "effect", `type t interface {
			~chan int // BAD
		}
		func f[C t](c C) {
			c <- 1 // BAD
			for range c { // BAD
			}
		}`},

	{"clock", "time", "core.Time", `func f() int64 {
			return time.Now().Unix() // BAD
		}`},
	{"elapsed", "time", "core.Time", `func f(t time.Time) { // BAD
			_ = time.Since(t) // BAD
		}`},
	{"sleep", "time", "core.Time", `func f() {
			time.Sleep(time.Second) // BAD
		}`},
	{"timer", "time", "core.Time", `func f() {
			time.AfterFunc(5*time.Millisecond, f) // BAD
		}`},
	{"ticker", "time", "core.Time", `func f() {
			_ = time.NewTicker(time.Hour) // BAD
		}`},
	{"clock as a value", "time", "core.Time", `var now = time.Now // BAD`},
	{"clock under another name", "time", "core.Time", `import clock "time"
		var now = clock.Now // BAD`},
	{"clock without a name", "time", "core.Time", `import . "time"
		func f() Duration {
			return Until(Unix(0, 0)) // BAD
		}`},
	{"time zone", "time", "core.Time", `var zone = time.Local // BAD`},

	{"printing", "use", "Log effect", `func f() {
			fmt.Println("x") // BAD
			println("x") // BAD
		}`},
	{"reading", "use", "reads nothing", `func f() (n int) {
			fmt.Scan(n) // BAD
			return n
		}`},
	{"coroutine", "use", "range over", `func f(s iter.Seq[int]) {
			next, _ := iter.Pull(s) // BAD
			next()
		}`},
	{"address", "address", "id", `func f(p *int) string {
			return fmt.Sprintf("%s %-10p", "x", p) // BAD
		}`},

	{"keys in random order", "use", "slices.Sorted", `func f(m map[int]int) {
			for range maps.Keys(m) { // BAD
			}
		}`},
	{"keys collected", "use", "slices.Sorted", `func f(m map[int]int) []int {
			return slices.Collect(maps.Keys(m)) // BAD
		}`},
	{"keys sorted later", "use", "slices.Sorted", `func f(m map[int]int) []int {
			s := maps.Keys(m) // BAD
			return slices.Sorted(s)
		}`},
	{"the function itself", "use", "slices.Sorted", `func f(m map[int]int) any {
			return maps.Keys[map[int]int] // BAD
		}`},
	{"values", "use", "slices.Sorted", `func f(m map[int]int) {
			for range maps.Values(m) { // BAD
			}
		}`},
	{"values by a comparator", "use", "slices.Sorted", `func f(m map[int]*int) []*int {
			return slices.SortedFunc(maps.Values(m), func(a, b *int) int { return *a - *b }) // BAD
		}`},
	{"all", "use", "slices.Sorted", `func f(m map[int]int) {
			for range maps.All(m) { // BAD
			}
		}`},
	{"deleting by a function", "use", "plain loop", `func f(m map[int]int) {
			maps.DeleteFunc(m, func(k, v int) bool { return v > 3 }) // BAD
		}`},

	{"global assigned", "global", "state", `var n int
		func f() {
			n = 1 // BAD
			n++ // BAD
		}`},
	{"global map", "global", "state", `var m = map[int]int{}
		func f() {
			m[1] = 2 // BAD
			delete(m, 1) // BAD
			clear(m) // BAD
		}`},
	{"global struct", "global", "state", `var s struct{ a []int }
		func f() {
			s.a[3] = 1 // BAD
			p := &s // BAD
			_ = p
		}`},
	{"global with methods", "global", "state", `type t struct{ n int }
		func (t *t) inc() { t.n++ }
		var v t
		var p = new(t)
		func f() {
			v.inc() // BAD
			p.inc() // BAD
		}`},
	{"global buffer", "global", "state", `var b bytes.Buffer
		func f() {
			b.WriteString("x") // BAD
		}`},
	{"global as a loop variable", "global", "state", `var i int
		func f(s []int) {
			for i = range s { // BAD
			}
		}`},

	{"build constraint", "file", "", `//go:build linux // BAD`},

	{"clock in init", "time", "core.Time", `var start int64
		func init() {
			start = time.Now().Unix() // BAD
		}`},
}

var accepted = []snippet{
	{name: "plain packages", src: `import "github.com/twmb/franz-go/pkg/kmsg"
		import "github.com/google/btree"
		import "lockstep/core/accepted0"
		var id kmsg.Key
		var tree *btree.BTreeG[int]
		var other = accepted0.Exported`},
	{name: "durations", src: `const wait = 5 * time.Second
		func f(d time.Duration) int64 { return (d + wait).Milliseconds() }`},
	{name: "formatting", src: `func f(n int) error { return fmt.Errorf("%d %%p %s", n, strings.Repeat("p", n)) }`},
	{name: "a method called Now", src: `type clock struct{}
		func (clock) Now() int { return 0 }
		var n = clock{}.Now()`},
	{name: "sorted keys", src: `func f(m map[string]int) {
			for range slices.Sorted(maps.Keys(m)) {
			}
			for range slices.SortedFunc(maps.Keys(m), strings.Compare) {
			}
			_ = slices.Sorted(maps.Values(m))
			_ = maps.Clone(m)
		}`},
	{name: "tables", src: `var table = map[int]string{1: "x"}
		var squares [4]int
		func init() {
			for i := range squares {
				squares[i] = i * i
			}
		}
		func f(i int) string { return table[squares[i]] }`},
	{name: "global values", src: `type t struct{ n int }
		func (t t) get() int { return t.n }
		var v t
		func f() int { n := v; n.n++; return v.get() }`},
	{name: "shadowed global", src: `var n int
		func f() int { n := 1; n++; return n }`},
	{name: "slices and others", src: `func g(int) {}
		func f(s []int, a *[3]int, n int, text string, seq iter.Seq[int]) {
			for i := range s { g(i) }
			for i := range a { g(i) }
			for i := range n { g(i) }
			for i := range text { g(i) }
			for i := range seq { g(i) }
		}`},
	{name: "a type parameter that is no map", src: `func g(any) {}
		func f[S ~[]E, E comparable](s S) {
			for _, e := range s { g(e) }
		}`},
}

// source makes a file of a snippet.
func (s snippet) source(pkg string) []byte {
	src := s.src
	head := "package " + pkg + "\n"
	if strings.HasPrefix(src, "//go:build") {
		return []byte(src + "\n\n" + head)
	}
	var imports, rest []string
	for line := range strings.Lines(src) {
		if strings.HasPrefix(strings.TrimSpace(line), "import ") {
			imports = append(imports, line)
		} else {
			rest = append(rest, line)
		}
	}
	for _, name := range []string{"bytes", "cmp", "fmt", "iter", "maps", "slices", "sort", "strings", "time"} {
		used := regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(src)
		if used && !regexp.MustCompile(`import .*\b`+name+`\b`).MatchString(src) {
			imports = append(imports, fmt.Sprintf("import %q\n", name))
		}
	}
	return []byte(head + strings.Join(imports, "") + strings.Join(rest, "") + "\n")
}

// Every rule refuses what it is for, at its line, and nothing else.
func TestPurityRules(t *testing.T) {
	files := map[string][]byte{"core/accepted0/x.go": []byte("package accepted0\n\nconst Exported = 1\n")}
	rejected, accepted := slices.Concat(rejected, rejectedRanges), slices.Concat(accepted, acceptedRanges)
	for i, s := range rejected {
		files[fmt.Sprintf("core/rejected%d/x.go", i)] = s.source(fmt.Sprintf("rejected%d", i))
	}
	for i, s := range accepted {
		files[fmt.Sprintf("core/accepted%d/x.go", i+1)] = s.source(fmt.Sprintf("accepted%d", i+1))
	}
	found := make(map[string][]finding)
	for _, f := range checkPurity(t, files) {
		found[f.pos.Filename] = append(found[f.pos.Filename], f)
	}
	for i, s := range rejected {
		t.Run("no "+s.name, func(t *testing.T) {
			name := fmt.Sprintf("core/rejected%d/x.go", i)
			require.NotEmpty(t, found[name], "nothing found in:\n%s", files[name])
			bad := make(map[int]bool) // lines; true once found
			for n, line := range strings.Split(string(files[name]), "\n") {
				if strings.HasSuffix(line, "// BAD") {
					bad[n+1] = false
				}
			}
			require.NotEmpty(t, bad)
			for _, f := range found[name] {
				if _, ok := bad[f.pos.Line]; !ok && s.rule != "file" {
					t.Errorf("not expected: %v, in:\n%s", f, files[name])
				}
				bad[f.pos.Line] = true
				require.Equal(t, s.rule, f.rule, "%v", f)
				require.Contains(t, f.text, s.text)
			}
			for line, ok := range bad {
				require.True(t, ok, "nothing found in line %d of:\n%s", line, files[name])
			}
		})
	}
	for i, s := range accepted {
		t.Run(s.name, func(t *testing.T) {
			name := fmt.Sprintf("core/accepted%d/x.go", i+1)
			require.Empty(t, found[name], "in:\n%s", files[name])
		})
	}
}

func TestPurityOfFiles(t *testing.T) {
	for name, text := range map[string]string{
		"core/x/x_linux.go": "not built everywhere",
		"core/x/x_arm64.go": "not built everywhere",
		"core/x/fast.s":     "only Go",
		"core/x/x.c":        "only Go",
		"core/x/bad.go":     "expected 'package'",
	} {
		src := []byte("package x\n")
		if name == "core/x/bad.go" {
			src = []byte("x")
		}
		found := checkPurity(t, map[string][]byte{name: src})
		require.Equal(t, 1, len(found), "%s: %v", name, found)
		require.Contains(t, found[0].text, text)
		require.Regexp(t, `^core/x/[a-z_0-9.]+:1: \[file\] .+`, found[0].String())
	}
	require.Empty(t, checkPurity(t, map[string][]byte{"core/x/README.md": nil, "core/x/x.go": []byte("package x\n")}))

	found := checkPurity(t, map[string][]byte{"core/x/x.go": []byte("package x\n\nvar n int = \"text\"\n")})
	require.Equal(t, 1, len(found))
	require.Equal(t, "types", found[0].rule, "what does not type-check cannot be checked")
}
