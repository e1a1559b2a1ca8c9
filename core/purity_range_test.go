package core_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Which ranges over a map are allowed: those whose effect is the same in every
// order. What a loop may do, in any mix:
//
//   - delete from a map, or set an element of one, by the loop's own key;
//   - count, sum, or combine bits, of integers; keep a minimum or maximum;
//   - set a variable to a constant; a || b, a && b;
//   - collect keys into a slice that the next statement sorts; or structs with the key in a field, if it sorts
//     by that field; or other ordered values, if slices.Sort does it;
//   - return constants, if all returns are the same and the loop changes nothing;
//
// under any condition, as long as nothing that it reads is changed by it. To
// be provable, expressions call nothing but conversions, some builtins and
// functions that are known to be pure. Everything else: range over
// slices.Sorted(maps.Keys(m)). Not seen are two names for one thing, and sorts
// by a function that leaves different keys equal.

const rangeInstead = "range over slices.Sorted(maps.Keys(m)), or use a btree (the order-free forms are listed in purity_range_test.go)"

// checkRanges checks every range over a map below a node.
func (p *purity) checkRanges(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		var list []ast.Stmt
		switch n := n.(type) {
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		for i, s := range list {
			for l, ok := s.(*ast.LabeledStmt); ok; l, ok = s.(*ast.LabeledStmt) {
				s = l.Stmt
			}
			if r, ok := s.(*ast.RangeStmt); ok && isKind[*types.Map](p.info.TypeOf(r.X)) {
				p.checkRange(r, list[i+1:])
			}
		}
		return true
	})
}

// mapRange is the check of one range over a map.
type mapRange struct {
	*purity
	key       types.Object // the loop's key, nil if it has none
	locals    map[types.Object]bool
	reads     []place
	writes    []change
	collected []place
	elements  map[string]string // by path, what is collected: "key", the field that is the key, or "" for anything
	returns   []string
	why       string // the first thing that is not order-free
	at        token.Pos
}

// place is a variable, or a field of one, and so on.
type place struct {
	root types.Object
	path string
}

// change is a place that is changed, and how: changes of one kind may come in any order.
type change struct {
	place
	how string
}

// overlaps says whether a change of one place is a change of the other.
func (a place) overlaps(b place) bool {
	return a.root == b.root && (a.path == b.path || strings.HasPrefix(a.path, b.path+".") || strings.HasPrefix(b.path, a.path+"."))
}

func (p *purity) checkRange(r *ast.RangeStmt, after []ast.Stmt) {
	m := &mapRange{
		purity: p, locals: make(map[types.Object]bool), elements: make(map[string]string),
	}
	if r.Tok == token.ASSIGN {
		m.refuse(r, "what was last in key or value stays after the loop")
	}
	if id, ok := r.Key.(*ast.Ident); ok {
		m.key = p.info.Defs[id]
	}
	m.declare(r.Key, r.Value)
	m.block(r.Body, true, false)
	for _, w := range m.writes {
		if slices.ContainsFunc(m.reads, w.overlaps) {
			m.refuse(r, "%s is changed and read", w.path)
		}
		if slices.ContainsFunc(m.writes, func(v change) bool { return v.overlaps(w.place) && v != w }) {
			m.refuse(r, "%s is changed in two ways", w.path)
		}
	}
	if len(m.returns) > 0 && len(m.writes) > 0 {
		m.refuse(r, "it returns in the middle of changing %s", m.writes[0].path)
	}
	m.checkSorted(r, after)
	if m.why != "" {
		p.report(r.Pos(), "map range", "%s (line %d): the order of a map is random: %s", m.why, p.fset.Position(m.at).Line, rangeInstead)
	}
}

func (m *mapRange) refuse(at ast.Node, format string, args ...any) {
	if m.why == "" {
		m.why, m.at = fmt.Sprintf(format, args...), at.Pos()
	}
}

func (m *mapRange) declare(exprs ...ast.Expr) {
	for _, x := range exprs {
		if id, ok := x.(*ast.Ident); ok {
			if obj := m.info.Defs[id]; obj != nil {
				m.locals[obj] = true
			}
		}
	}
}

// checkSorted checks that what was collected is sorted right after the loop.
func (m *mapRange) checkSorted(r *ast.RangeStmt, after []ast.Stmt) {
	unsorted := slices.Clone(m.collected)
	for len(unsorted) > 0 && len(after) > 0 {
		s, ok := after[0].(*ast.ExprStmt)
		after = after[1:]
		if !ok {
			break
		}
		call, ok := s.X.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			break
		}
		_, obj := m.callee(call)
		by := qualified(obj)
		total := by == "slices.Sort" || by == "sort.Strings" || by == "sort.Ints"
		if !total && by != "slices.SortFunc" && by != "slices.SortStableFunc" && by != "sort.Slice" && by != "sort.SliceStable" {
			break
		}
		what, ok := m.place(call.Args[0])
		i := slices.Index(unsorted, what)
		if !ok || i < 0 {
			break
		}
		if has := m.elements[what.path]; !total && has != "key" && (has == "" || has != sortedBy(call)) {
			m.refuse(s, "%s has other elements than keys, so %s can leave equal ones in random order", what.path, by)
		}
		unsorted = slices.Delete(unsorted, i, i+1)
	}
	if len(unsorted) > 0 {
		m.refuse(r, "%s is filled and not sorted by the next statement", unsorted[0].path)
	}
}

func (m *mapRange) block(b *ast.BlockStmt, keyed, breakable bool) {
	for _, s := range b.List {
		m.stmt(s, keyed, breakable)
	}
}

// stmt checks one statement of the body. keyed says that it runs at most once
// for each key; breakable, that a break would not end the range over the map.
func (m *mapRange) stmt(s ast.Stmt, keyed, breakable bool) {
	switch s := s.(type) {
	case nil, *ast.EmptyStmt:
	case *ast.BlockStmt:
		m.block(s, keyed, breakable)
	case *ast.IfStmt:
		m.stmt(s.Init, keyed, breakable)
		m.read(s.Cond)
		m.block(s.Body, keyed, breakable)
		m.stmt(s.Else, keyed, breakable)
	case *ast.SwitchStmt:
		m.stmt(s.Init, keyed, breakable)
		m.read(s.Tag)
		for _, c := range s.Body.List {
			c := c.(*ast.CaseClause)
			m.read(c.List...)
			for _, s := range c.Body {
				m.stmt(s, keyed, true)
			}
		}
	case *ast.RangeStmt: // over a map it is checked by itself, too
		m.read(s.X)
		if s.Tok == token.ASSIGN {
			m.refuse(s, "what was last in key or value stays after the loop")
		}
		m.declare(s.Key, s.Value)
		m.block(s.Body, false, true)
	case *ast.ForStmt:
		m.stmt(s.Init, false, true)
		m.read(s.Cond)
		m.stmt(s.Post, false, true)
		m.block(s.Body, false, true)
	case *ast.BranchStmt:
		if s.Label != nil || s.Tok != token.CONTINUE && !(s.Tok == token.BREAK && breakable) {
			m.refuse(s, "%s ends the loop at a random element", s.Tok)
		}
	case *ast.ReturnStmt:
		m.ret(s)
	case *ast.DeclStmt:
		m.decl(s)
	case *ast.IncDecStmt:
		m.update(s, s.X, keyed)
	case *ast.AssignStmt:
		m.assign(s, keyed)
	case *ast.ExprStmt:
		m.call(s, keyed)
	default:
		m.refuse(s, "its body does more than delete, set by key, count or collect")
	}
}

func (m *mapRange) ret(s *ast.ReturnStmt) {
	var text []string
	for _, x := range s.Results {
		if !m.isConstant(x) {
			m.refuse(s, "it returns something that depends on which element came first")
		}
		text = append(text, types.ExprString(x))
	}
	m.returns = append(m.returns, strings.Join(text, ", "))
	if m.returns[0] != m.returns[len(m.returns)-1] {
		m.refuse(s, "which of its returns comes first is random")
	}
}

// isConstant says whether an expression has the same value in every iteration at first sight.
func (m *mapRange) isConstant(x ast.Expr) bool {
	tv := m.info.Types[x]
	return tv.Value != nil || tv.IsNil()
}

func (m *mapRange) decl(s *ast.DeclStmt) {
	d, ok := s.Decl.(*ast.GenDecl)
	if !ok || d.Tok == token.TYPE {
		return
	}
	for _, spec := range d.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok {
			m.read(v.Values...)
			for _, name := range v.Names {
				m.declare(name)
			}
		}
	}
}

// call checks a call as a statement: only delete by the loop's key.
func (m *mapRange) call(s *ast.ExprStmt, keyed bool) {
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		m.refuse(s, "its body does more than delete, set by key, count or collect")
		return
	}
	_, obj := m.callee(call)
	if b, ok := obj.(*types.Builtin); !ok || b.Name() != "delete" {
		m.refuse(s, "it calls %s for each element", types.ExprString(call.Fun))
		return
	}
	if !keyed || !m.isKey(call.Args[1]) {
		m.refuse(s, "it deletes by another key than the loop's")
	}
	m.write(call.Args[0], "by key")
}

func (m *mapRange) isKey(x ast.Expr) bool {
	id, ok := ast.Unparen(x).(*ast.Ident)
	return ok && m.key != nil && m.info.Uses[id] == m.key
}

func (m *mapRange) assign(s *ast.AssignStmt, keyed bool) {
	switch {
	case s.Tok == token.DEFINE:
		m.read(s.Rhs...)
		m.declare(s.Lhs...)
		for _, x := range s.Lhs { // := may assign to what is there already
			if id := x.(*ast.Ident); m.info.Defs[id] == nil && id.Name != "_" {
				m.set(s, x, nil, keyed)
			}
		}
	case s.Tok != token.ASSIGN:
		m.read(s.Rhs...)
		m.update(s, s.Lhs[0], keyed)
	default:
		for i, x := range s.Lhs {
			if len(s.Rhs) == len(s.Lhs) {
				m.set(s, x, s.Rhs[i], keyed)
			} else {
				m.set(s, x, nil, keyed)
			}
		}
		if len(s.Rhs) != len(s.Lhs) {
			m.read(s.Rhs...)
		}
	}
}

// update checks x++, x += y and their like.
func (m *mapRange) update(s ast.Stmt, x ast.Expr, keyed bool) {
	if m.local(x) || m.byKey(x, keyed) {
		return
	}
	how := "sum"
	if a, ok := s.(*ast.AssignStmt); ok {
		switch a.Tok {
		case token.ADD_ASSIGN, token.SUB_ASSIGN:
		case token.MUL_ASSIGN, token.OR_ASSIGN, token.AND_ASSIGN, token.XOR_ASSIGN, token.AND_NOT_ASSIGN:
			how = a.Tok.String()
		default:
			m.refuse(s, "%s depends on the order", a.Tok)
		}
	}
	b, ok := m.info.TypeOf(x).Underlying().(*types.Basic)
	if !ok || b.Info()&types.IsInteger == 0 {
		m.refuse(s, "only sums of integers do not depend on the order")
	}
	m.write(x, how)
}

// set checks x = y; y is nil if it is one of several results, which are read elsewhere.
func (m *mapRange) set(s ast.Stmt, x, y ast.Expr, keyed bool) {
	if id, ok := x.(*ast.Ident); ok && id.Name == "_" || m.local(x) || m.byKey(x, keyed) {
		m.read(y)
		return
	}
	what, ok := m.place(x)
	if !ok || y == nil {
		m.refuse(s, "it sets %s, and what is set last stays", types.ExprString(x))
		return
	}
	how := ""
	switch args, builtin := m.builtin(y); {
	case m.isConstant(y):
		how = "constant " + types.ExprString(y)
	case builtin == "append" && m.is(args[0], what):
		how = "append"
		m.read(args[1:]...)
		m.collect(what, args[1:], keyed)
	case (builtin == "min" || builtin == "max") && m.is(args[0], what) && !isFloat(m.info.TypeOf(x)):
		how = builtin
		m.read(args[1:]...)
	case m.isLogic(y, what):
		b := ast.Unparen(y).(*ast.BinaryExpr)
		how = b.Op.String()
		m.read(b.Y)
	default:
		m.refuse(s, "it sets %s, and what is set last stays", what.path)
	}
	m.write(x, how)
}

// isLogic says whether y is what || … or what && ….
func (m *mapRange) isLogic(y ast.Expr, what place) bool {
	b, ok := ast.Unparen(y).(*ast.BinaryExpr)
	return ok && (b.Op == token.LOR || b.Op == token.LAND) && m.is(b.X, what)
}

func isFloat(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return !ok || b.Info()&(types.IsFloat|types.IsComplex) != 0
}

// builtin returns the arguments and the name of a call of a builtin function.
func (m *mapRange) builtin(x ast.Expr) ([]ast.Expr, string) {
	if call, ok := ast.Unparen(x).(*ast.CallExpr); ok {
		if _, obj := m.callee(call); obj != nil {
			if b, ok := obj.(*types.Builtin); ok {
				return call.Args, b.Name()
			}
		}
	}
	return nil, ""
}

// collect notes what is appended to a place.
func (m *mapRange) collect(what place, elements []ast.Expr, keyed bool) {
	is := ""
	if len(elements) == 1 {
		is = m.keyIn(elements[0])
	}
	again := slices.Contains(m.collected, what)
	if is != "key" && (again || !keyed) || again && m.elements[what.path] != "key" {
		is = "" // there may be several with the same key
	}
	if !again {
		m.collected = append(m.collected, what)
	}
	m.elements[what.path] = is
}

// keyIn returns "key" for the loop's key, and for a struct literal the field that is the key.
func (m *mapRange) keyIn(x ast.Expr) string {
	if m.isKey(x) {
		return "key"
	}
	if u, ok := x.(*ast.UnaryExpr); ok && u.Op == token.AND {
		x = u.X
	}
	lit, ok := x.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	s, ok := m.info.TypeOf(lit).Underlying().(*types.Struct)
	if !ok {
		return ""
	}
	for i, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && m.isKey(kv.Value) {
			return "." + types.ExprString(kv.Key)
		}
		if m.isKey(e) {
			return "." + s.Field(i).Name()
		}
	}
	return ""
}

// sortedBy returns the field by which a sort compares, if its last argument is
// func(a, b T) int { return cmp.Compare(a.F, b.F) } or the like with a.F.Compare(b.F).
func sortedBy(sort *ast.CallExpr) string {
	f, ok := sort.Args[len(sort.Args)-1].(*ast.FuncLit)
	if !ok || len(f.Body.List) != 1 {
		return ""
	}
	ret, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return ""
	}
	call, ok := ret.Results[0].(*ast.CallExpr)
	if !ok {
		return ""
	}
	compared := call.Args
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fun.Sel.Name != "Compare" {
		return ""
	}
	if len(compared) == 1 {
		compared = []ast.Expr{fun.X, compared[0]}
	}
	if len(compared) != 2 {
		return ""
	}
	a, okA := compared[0].(*ast.SelectorExpr)
	b, okB := compared[1].(*ast.SelectorExpr)
	if !okA || !okB || a.Sel.Name != b.Sel.Name {
		return ""
	}
	x, okA := a.X.(*ast.Ident) // of the argument itself, not of something in it
	y, okB := b.X.(*ast.Ident)
	if !okA || !okB || x.Name == y.Name {
		return ""
	}
	return "." + a.Sel.Name
}

// local says whether x is a variable of the body, or within one without going through memory that others see.
func (m *mapRange) local(x ast.Expr) bool {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		obj := m.info.ObjectOf(x)
		if obj != nil && obj == m.key {
			m.refuse(x, "it changes the loop's key")
		}
		return m.locals[obj]
	case *ast.SelectorExpr:
		return isKind[*types.Struct](m.info.TypeOf(x.X)) && m.local(x.X)
	case *ast.IndexExpr:
		return isKind[*types.Array](m.info.TypeOf(x.X)) && m.local(x.X)
	}
	return false
}

// byKey says whether x is an element of a map by the loop's key, which no other iteration touches.
func (m *mapRange) byKey(x ast.Expr, keyed bool) bool {
	i, ok := ast.Unparen(x).(*ast.IndexExpr)
	if !ok || !keyed || !m.isKey(i.Index) || !isKind[*types.Map](m.info.TypeOf(i.X)) {
		return false
	}
	m.write(i.X, "by key")
	return true
}

// write notes a place that is changed.
func (m *mapRange) write(x ast.Expr, how string) {
	what, ok := m.place(x)
	if !ok {
		m.refuse(x, "it changes %s, which is no plain variable or field", types.ExprString(x))
		return
	}
	m.writes = append(m.writes, change{what, how})
}

// place returns the variable or field that x names.
func (m *mapRange) place(x ast.Expr) (place, bool) {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		return place{m.info.ObjectOf(x), x.Name}, m.info.ObjectOf(x) != nil
	case *ast.StarExpr:
		return m.place(x.X)
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			if _, pkg := m.info.Uses[id].(*types.PkgName); pkg {
				return place{m.info.Uses[x.Sel], x.Sel.Name}, true
			}
		}
		p, ok := m.place(x.X)
		return place{p.root, p.path + "." + x.Sel.Name}, ok
	}
	return place{}, false
}

func (m *mapRange) is(x ast.Expr, what place) bool {
	p, ok := m.place(x)
	return ok && p == what
}

// purePackages are packages whose functions only look at their arguments; of slices and maps, those named.
var (
	purePackages  = map[string]bool{"bytes": true, "cmp": true, "errors": true, "math": true, "math/bits": true, "strings": true, "unicode": true, "unicode/utf8": true}
	pureFunctions = map[string]bool{
		"slices.Clone": true, "slices.Contains": true, "slices.Index": true, "slices.Equal": true, "slices.Compare": true,
		"slices.Max": true, "slices.Min": true, "slices.BinarySearch": true, "maps.Clone": true, "maps.Equal": true,
		"len": true, "cap": true, "min": true, "max": true, "new": true, "make": true, "real": true, "imag": true, "complex": true,
	}
)

// read checks expressions that are only read, and notes what they read.
func (m *mapRange) read(exprs ...ast.Expr) {
	for _, x := range exprs {
		if x == nil {
			continue
		}
		ast.Inspect(x, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				m.refuse(n, "it makes a function for each element")
				return false
			case *ast.CallExpr:
				if _, obj := m.callee(n); !m.info.Types[n.Fun].IsType() && !m.pureCall(obj) {
					m.refuse(n, "it calls %s for each element, which may do anything", types.ExprString(n.Fun))
				}
			case *ast.KeyValueExpr: // the key of a struct literal is no variable
				if id, ok := n.Key.(*ast.Ident); ok {
					if v, ok := m.info.Uses[id].(*types.Var); ok && v.IsField() {
						m.read(n.Value)
						return false
					}
				}
			case *ast.Ident, *ast.SelectorExpr, *ast.StarExpr:
				if what, ok := m.place(n.(ast.Expr)); ok {
					m.reads = append(m.reads, what)
					return false
				}
			}
			return true
		})
	}
}

func (m *mapRange) pureCall(obj types.Object) bool {
	if obj == nil {
		return false
	}
	if fn, ok := obj.(*types.Func); ok && fn.Signature().Recv() != nil {
		return false
	}
	return pureFunctions[qualified(obj)] || obj.Pkg() != nil && purePackages[obj.Pkg().Path()]
}
