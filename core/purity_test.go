package core_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/build/constraint"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The purity test: what stands at the top of docs and of core.go, that the core
// is a pure function of (state, time, input), is checked here on the syntax
// trees and types of every file under core/ that is not a test.
//
// purity_rules_test.go says what is allowed, purity_range_test.go which ranges
// over maps, and purity_reject_test.go shows by example what is refused.
//
// It does not see: state that leaks through the memory of an argument; a
// slice or map of package level that is changed through another name; formatting
// with %v that prints the address of a nested pointer; comparators that are no
// total order; arithmetic of floats, which may differ between processors.

// finding is one thing that must not be in core/.
type finding struct {
	pos  token.Position
	rule string // a short name, the same for all findings of one kind
	text string // what is wrong, and what to do instead
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: [%s] %s", f.pos.Filename, f.pos.Line, f.rule, f.text)
}

const corePath = "lockstep/core"

func TestPurity(t *testing.T) {
	files := make(map[string][]byte) // by path from the module's root
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (base == "testdata" || base[0] == '_' || base[0] == '.') {
				return fs.SkipDir // the go command does not look there either
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files[path.Join("core", filepath.ToSlash(name))], err = os.ReadFile(name)
		return err
	})
	require.NoError(t, err)
	require.Contains(t, files, "core/core.go")
	require.Contains(t, files, "core/broker/effect.go")
	for _, f := range checkPurity(t, files) {
		t.Errorf("%v", f)
	}
}

// purity checks the packages of one tree.
type purity struct {
	fset     *token.FileSet
	parsed   map[string][]*ast.File // by import path
	checked  map[string]*types.Package
	info     *types.Info
	outside  types.Importer
	findings []finding
}

// checkPurity returns what is wrong with the files, whose names begin with "core/".
func checkPurity(t testing.TB, files map[string][]byte) []finding {
	t.Helper()
	p := &purity{
		fset: token.NewFileSet(), parsed: make(map[string][]*ast.File), checked: make(map[string]*types.Package),
		info: &types.Info{
			Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object),
			Defs: make(map[*ast.Ident]types.Object), Selections: make(map[*ast.SelectorExpr]*types.Selection),
		},
	}
	for name, src := range files {
		p.parse(name, src)
	}
	p.outside = outsideImporter(t, p.fset, p.outsideImports())
	for _, pkg := range sortedKeys(p.parsed) {
		if _, err := p.Import(pkg); err != nil {
			p.report(p.parsed[pkg][0].Pos(), "types", "%v: what does not type-check cannot be checked", err)
		}
	}
	for _, pkg := range sortedKeys(p.parsed) {
		for _, file := range p.parsed[pkg] {
			p.checkFile(file)
		}
	}
	slices.SortFunc(p.findings, func(a, b finding) int {
		return strings.Compare(fmt.Sprintf("%s %09d %s", a.pos.Filename, a.pos.Offset, a.rule),
			fmt.Sprintf("%s %09d %s", b.pos.Filename, b.pos.Offset, b.rule))
	})
	return p.findings
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (p *purity) report(pos token.Pos, rule, format string, args ...any) {
	p.findings = append(p.findings, finding{p.fset.Position(pos), rule, fmt.Sprintf(format, args...)})
}

// parse parses one file and checks what concerns it as a whole.
func (p *purity) parse(name string, src []byte) {
	at := finding{pos: token.Position{Filename: name, Line: 1}, rule: "file"}
	if !strings.HasSuffix(name, ".go") {
		if slices.Contains([]string{".s", ".S", ".c", ".cc", ".cpp", ".cxx", ".m", ".h", ".f", ".syso", ".swig"}, path.Ext(name)) {
			at.text = "only Go can be checked: write it in Go"
			p.findings = append(p.findings, at)
		}
		return
	}
	file, err := parser.ParseFile(p.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		at.text = err.Error()
		p.findings = append(p.findings, at)
		return
	}
	elsewhere := build.Default // a file that is left out there is not the same core everywhere
	elsewhere.GOOS, elsewhere.GOARCH, elsewhere.CgoEnabled = "plan9", "mips", false
	elsewhere.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(src)), nil }
	if match, err := elsewhere.MatchFile(path.Dir(name), path.Base(name)); err != nil || !match {
		at.text = "the file is not built everywhere: the core is the same on all machines"
		p.findings = append(p.findings, at)
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if constraint.IsGoBuild(c.Text) || strings.HasPrefix(c.Text, "//go:linkname") {
				p.report(c.Pos(), "file", "%s: the core has neither build constraints nor links around the language", c.Text)
			}
		}
	}
	pkg := path.Join("lockstep", path.Dir(name))
	p.parsed[pkg] = append(p.parsed[pkg], file)
}

// outsideImports are the allowed imports that are not in core/.
func (p *purity) outsideImports() []string {
	seen := make(map[string]bool)
	for _, files := range p.parsed {
		for _, file := range files {
			for _, spec := range file.Imports {
				if name := importPath(spec); allowedImport(name) == "" && !inCore(name) {
					seen[name] = true
				}
			}
		}
	}
	return sortedKeys(seen)
}

func importPath(spec *ast.ImportSpec) string { return strings.Trim(spec.Path.Value, "`\"") }

func inCore(pkg string) bool { return pkg == corePath || strings.HasPrefix(pkg, corePath+"/") }

// Import implements types.Importer: packages of core/ from their source, which
// is what is checked, and others from what the compiler made of them.
func (p *purity) Import(pkg string) (*types.Package, error) {
	if done, ok := p.checked[pkg]; ok {
		if done == nil {
			return nil, fmt.Errorf("package %s is imported in a circle or is wrong itself", pkg)
		}
		return done, nil
	}
	files := p.parsed[pkg]
	if len(files) == 0 {
		if allowedImport(pkg) != "" || inCore(pkg) {
			return nil, fmt.Errorf("package %s is not there", pkg)
		}
		return p.outside.Import(pkg)
	}
	p.checked[pkg] = nil
	// A forbidden import is reported as such; the errors that follow from it are no news.
	broken := slices.ContainsFunc(files, func(f *ast.File) bool {
		return slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return allowedImport(importPath(s)) != "" })
	})
	var first error
	conf := types.Config{Importer: p, Error: func(err error) {
		if first == nil && !broken {
			first = err
		}
	}}
	done, _ := conf.Check(pkg, p.fset, files, p.info)
	if first != nil {
		return nil, first
	}
	p.checked[pkg] = done
	return done, nil
}

// outsideImporter imports packages from the export data that the go command
// has in its build cache.
func outsideImporter(t testing.TB, fset *token.FileSet, pkgs []string) types.Importer {
	t.Helper()
	exports := make(map[string]string)
	if len(pkgs) > 0 {
		cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}, pkgs...)...)
		cmd.Stderr = new(bytes.Buffer)
		out, err := cmd.Output()
		require.NoError(t, err, "go list: %s", cmd.Stderr)
		for line := range strings.Lines(string(out)) {
			name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
			exports[name] = file
		}
	}
	return importer.ForCompiler(fset, "gc", func(pkg string) (io.ReadCloser, error) {
		file, ok := exports[pkg]
		if !ok || file == "" {
			return nil, fmt.Errorf("no export data for %s", pkg)
		}
		return os.Open(file)
	})
}
