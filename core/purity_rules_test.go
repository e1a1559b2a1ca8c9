package core_test

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// allowedOutside is all that core/ may import from outside: kmsg, btree, and
// packages of the standard library that compute and do nothing else. Another
// package of that kind may be added here; whoever adds it has looked whether
// anything in it reads a clock, randomness, the machine or a map's order.
var allowedOutside = map[string]bool{
	"github.com/twmb/franz-go/pkg/kmsg": true,
	"github.com/google/btree":           true,

	"bytes": true, "cmp": true, "container/heap": true, "container/list": true,
	"encoding/base64": true, "encoding/binary": true, "encoding/hex": true, "errors": true, "fmt": true,
	"hash": true, "hash/crc32": true, "hash/fnv": true, "iter": true, "maps": true, "math": true, "math/bits": true, "regexp": true, "regexp/syntax": true,
	"slices": true, "sort": true, "strconv": true, "strings": true, "time": true, "unicode": true, "unicode/utf8": true,
}

// insteadOf says what to do instead of importing a package, by its path or the beginning of it.
var insteadOf = []struct{ path, instead string }{
	{"os", "the host does input and output: add an effect, and an input that answers it"},
	{"io", "the host does input and output: add an effect, and an input that answers it"},
	{"net", "the host has the sockets: answer with Respond, ask a peer with Call"},
	{"syscall", "the host does input and output: add an effect, and an input that answers it"},
	{"sync", "one goroutine steps the core, so there is nothing to lock"},
	{"context", "a deadline is a core.Time that the core compares with now"},
	{"math/rand", "draw from the core.Rand that the broker got at birth"},
	{"crypto/rand", "draw from the core.Rand that the broker got at birth"},
	{"hash/maphash", "its seed is random: use hash/fnv or hash/crc32"},
	{"log", "add a Log effect"},
	{"runtime", "the core does not know the machine it runs on"},
	{"unsafe", "addresses differ from run to run"},
	{"reflect", "it iterates over maps and selects on channels: use plain types"},
	{"encoding/gob", "it writes maps in their order: write the bytes with encoding/binary or kmsg"},
	{"C", "only Go can be checked"},
	{"lockstep/", "core knows nobody outside core: let the host hand in a value, or an implementation of an interface of core's"},
}

// allowedImport returns why a package may not be imported, or nothing.
func allowedImport(pkg string) (why string) {
	if inCore(pkg) || allowedOutside[pkg] {
		return ""
	}
	for _, r := range insteadOf {
		if pkg == r.path || strings.HasPrefix(pkg, strings.TrimSuffix(r.path, "/")+"/") {
			return r.instead
		}
	}
	return "core imports only core, kmsg, btree and the packages that purity_rules_test.go lists; if it only computes, add it there"
}

// timeAllowed is what core/ may use of package time; and the methods of Duration.
var timeAllowed = map[string]bool{
	"Duration": true, "Nanosecond": true, "Microsecond": true, "Millisecond": true, "Second": true, "Minute": true, "Hour": true,
}

// forbidden says what to do instead of using a name of an allowed package. A
// name without package is a builtin function.
var forbidden = map[string]string{
	"print": "add a Log effect", "println": "add a Log effect",
	"fmt.Print": "add a Log effect", "fmt.Printf": "add a Log effect", "fmt.Println": "add a Log effect",
	"fmt.Scan": "the core reads nothing", "fmt.Scanf": "the core reads nothing", "fmt.Scanln": "the core reads nothing",
	"iter.Pull": "it runs a coroutine: range over the sequence", "iter.Pull2": "it runs a coroutine: range over the sequence",
	"maps.Keys":       "its order is random: write slices.Sorted(maps.Keys(m)), or slices.SortedFunc with a total order",
	"maps.Values":     "its order is random: range over slices.Sorted(maps.Keys(m))",
	"maps.All":        "its order is random: range over slices.Sorted(maps.Keys(m))",
	"maps.DeleteFunc": "it calls the function in random order: range over slices.Sorted(maps.Keys(m)), or delete in a plain loop",
	"maps.EqualFunc":  "it calls the function in random order: range over slices.Sorted(maps.Keys(m))",
}

// checkFile walks over one file.
func (p *purity) checkFile(file *ast.File) {
	for _, spec := range file.Imports {
		if why := allowedImport(importPath(spec)); why != "" {
			p.report(spec.Pos(), "import", "%s: %s", importPath(spec), why)
		}
	}
	sorted := make(map[*ast.Ident]bool) // uses of maps.Keys that are sorted at once
	var initEnd token.Pos               // package-level variables may be filled before anything runs
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		p.checkConcurrency(n)
		if n.Pos() >= initEnd {
			p.checkGlobals(n)
		}
		switch n := n.(type) {
		case *ast.CallExpr:
			p.markSorted(n, sorted)
			p.checkFormat(n)
		case *ast.Ident:
			if !sorted[n] {
				p.checkUse(n)
			}
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				initEnd = n.End()
			}
		}
		return true
	})
	p.checkRanges(file)
}

func (p *purity) checkConcurrency(n ast.Node) {
	const instead = "the core is stepped by one goroutine and blocks on nothing: return an effect, and let its answer be an input"
	switch n := n.(type) {
	case *ast.GoStmt:
		p.report(n.Pos(), "go", "%s", instead)
	case *ast.SelectStmt:
		p.report(n.Pos(), "select", "%s", instead)
	case *ast.ChanType:
		p.report(n.Pos(), "chan", "%s", instead)
	case *ast.SendStmt:
		p.report(n.Pos(), "chan", "%s", instead)
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			p.report(n.Pos(), "chan", "%s", instead)
		}
	case *ast.RangeStmt:
		if isKind[*types.Chan](p.info.TypeOf(n.X)) {
			p.report(n.Pos(), "chan", "%s", instead)
		}
	}
}

// isKind says whether a type is, or as a type parameter can be, of a kind.
func isKind[K types.Type](t types.Type) bool {
	if t == nil {
		return false
	}
	if _, ok := t.Underlying().(K); ok {
		return true
	}
	if u, ok := t.(*types.Union); ok {
		for i := range u.Len() {
			if isKind[K](u.Term(i).Type()) {
				return true
			}
		}
	}
	constraint, ok := t.Underlying().(*types.Interface)
	if _, param := types.Unalias(t).(*types.TypeParam); !ok || !param && !constraint.IsImplicit() && constraint.IsMethodSet() {
		return false
	}
	for i := range constraint.NumEmbeddeds() {
		if isKind[K](constraint.EmbeddedType(i)) {
			return true
		}
	}
	return false
}

// object returns what a call calls, if it has a name.
func (p *purity) callee(call *ast.CallExpr) (*ast.Ident, types.Object) {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) { // explicit type arguments
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		return f, p.info.Uses[f]
	case *ast.SelectorExpr:
		return f.Sel, p.info.Uses[f.Sel]
	}
	return nil, nil
}

// qualified returns "path.Name" for what belongs to a package's scope, "Name" for a builtin.
func qualified(obj types.Object) string {
	switch {
	case obj == nil:
		return ""
	case obj.Pkg() == nil:
		return obj.Name()
	case obj.Parent() != obj.Pkg().Scope():
		return ""
	}
	return obj.Pkg().Path() + "." + obj.Name()
}

// markSorted marks maps.Keys in slices.Sorted(maps.Keys(m)) and its like.
// Keys are distinct, so any total order puts them in one order; of values
// only those that are equal in everything may be sorted.
func (p *purity) markSorted(call *ast.CallExpr, sorted map[*ast.Ident]bool) {
	_, obj := p.callee(call)
	name := qualified(obj)
	if name != "slices.Sorted" && name != "slices.SortedFunc" && name != "slices.SortedStableFunc" {
		return
	}
	inner, ok := ast.Unparen(call.Args[0]).(*ast.CallExpr)
	if !ok {
		return
	}
	ident, obj := p.callee(inner)
	if from := qualified(obj); from == "maps.Keys" || from == "maps.Values" && name == "slices.Sorted" {
		sorted[ident] = true
	}
}

func (p *purity) checkUse(ident *ast.Ident) {
	obj := p.info.Uses[ident]
	if obj == nil {
		return
	}
	if obj.Pkg() != nil && obj.Pkg().Path() == "time" && !timeUse(obj) {
		p.report(ident.Pos(), "time", "time.%s: time is given, as core.Time and core.WallMillis; only Duration and its units may be used",
			obj.Name())
		return
	}
	if _, builtin := obj.(*types.Builtin); obj.Pkg() == nil && !builtin {
		return
	}
	name := qualified(obj)
	if instead, ok := forbidden[name]; ok {
		p.report(ident.Pos(), "use", "%s: %s", name, instead)
	}
}

// timeUse says whether an object of package time may be used.
func timeUse(obj types.Object) bool {
	fn, ok := obj.(*types.Func)
	if !ok || fn.Signature().Recv() == nil {
		return obj.Parent() == obj.Pkg().Scope() && timeAllowed[obj.Name()]
	}
	recv := fn.Signature().Recv().Type()
	named, ok := types.Unalias(recv).(*types.Named)
	return ok && named.Obj().Name() == "Duration"
}

var pointerVerb = regexp.MustCompile(`%[-+# 0-9.*\[\]]*p`)

// checkFormat finds addresses that are printed.
func (p *purity) checkFormat(call *ast.CallExpr) {
	if _, obj := p.callee(call); obj == nil || obj.Pkg() == nil || obj.Pkg().Path() != "fmt" {
		return
	}
	for _, arg := range call.Args {
		v := p.info.Types[arg].Value
		if v != nil && v.Kind() == constant.String && pointerVerb.MatchString(strings.ReplaceAll(constant.StringVal(v), "%%", "")) {
			p.report(arg.Pos(), "address", "%%p: addresses differ from run to run: print an id")
		}
	}
}

// checkGlobals finds package-level variables that are changed: two brokers of
// one process would share them, and a broker stepped again would find them changed.
func (p *purity) checkGlobals(n ast.Node) {
	var changed []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			changed = n.Lhs
		}
	case *ast.IncDecStmt:
		changed = []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			changed = []ast.Expr{n.Key, n.Value}
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			changed = []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		switch _, obj := p.callee(n); obj := obj.(type) {
		case *types.Builtin:
			if name := obj.Name(); len(n.Args) > 0 && (name == "delete" || name == "clear" || name == "copy") {
				changed = n.Args[:1]
			}
		case *types.Func:
			if s, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && hasPointerReceiver(obj) {
				changed = p.receiver(s.X, obj)
			}
		}
	}
	for _, x := range changed {
		if v := p.global(x); v != nil {
			p.report(n.Pos(), "global", "%s is of package level and changed here: all brokers of a process would share it; "+
				"keep it in the state that is stepped, or fill it in init", v.Name())
		}
	}
}

// receiver returns what a call of a method with a pointer receiver may change.
// What another library keeps behind a pointer, as base64.StdEncoding, is its own business.
func (p *purity) receiver(x ast.Expr, method *types.Func) []ast.Expr {
	v := p.global(x)
	if v == nil || !inCore(v.Pkg().Path()) || isKind[*types.Pointer](v.Type()) && !inCore(method.Pkg().Path()) {
		return nil
	}
	return []ast.Expr{x}
}

func hasPointerReceiver(fn *types.Func) bool {
	recv := fn.Signature().Recv()
	return recv != nil && isKind[*types.Pointer](recv.Type())
}

// global returns the package-level variable that an expression is a part of.
func (p *purity) global(x ast.Expr) *types.Var {
	for {
		switch e := x.(type) {
		case *ast.ParenExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		case *ast.SelectorExpr:
			if v := packageLevel(p.info.Uses[e.Sel]); v != nil {
				return v
			}
			x = e.X
		case *ast.Ident:
			return packageLevel(p.info.Uses[e])
		default:
			return nil
		}
	}
}

func packageLevel(obj types.Object) *types.Var {
	if v, ok := obj.(*types.Var); ok && !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
		return v
	}
	return nil
}
