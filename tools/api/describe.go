package main

import (
	"fmt"
	"go/types"
)

// description collects the lines of a package.
type description struct {
	pkg   *types.Package
	lines []string
}

func (d *description) add(format string, args ...any) {
	d.lines = append(d.lines, "pkg "+d.pkg.Name()+", "+fmt.Sprintf(format, args...))
}

// text returns a type as a line shows it: packages by their names, parameters without theirs.
func (d *description) text(t types.Type) string {
	if sig, ok := t.(*types.Signature); ok && sig.TypeParams().Len() == 0 && sig.RecvTypeParams().Len() == 0 {
		t = types.NewSignatureType(nil, nil, nil, unnamed(sig.Params()), unnamed(sig.Results()), sig.Variadic())
	}
	return types.TypeString(t, func(p *types.Package) string {
		if p == d.pkg {
			return ""
		}
		return p.Name()
	})
}

// unnamed returns the variables without their names.
func unnamed(list *types.Tuple) *types.Tuple {
	vars := make([]*types.Var, list.Len())
	for i := range vars {
		vars[i] = types.NewParam(0, nil, "", list.At(i).Type())
	}
	return types.NewTuple(vars...)
}

// signature returns a function's type without the word func.
func (d *description) signature(t types.Type) string { return d.text(t)[len("func"):] }

func (d *description) object(obj types.Object) {
	switch o := obj.(type) {
	case *types.Const:
		d.add("const %s %s = %s", o.Name(), d.text(o.Type()), o.Val().ExactString())
	case *types.Var:
		d.add("var %s %s", o.Name(), d.text(o.Type()))
	case *types.Func:
		d.add("func %s%s", o.Name(), d.signature(o.Type()))
	case *types.TypeName:
		d.typeName(o)
	}
}

// typeName adds a type, its fields and its methods.
func (d *description) typeName(o *types.TypeName) {
	named, ok := types.Unalias(o.Type()).(*types.Named)
	if o.IsAlias() || !ok {
		d.add("type %s = %s", o.Name(), d.text(types.Unalias(o.Type())))
		return
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		comparable := ""
		if types.Comparable(named) {
			comparable = " (comparable)"
		}
		d.add("type %s struct%s", o.Name(), comparable)
		for f := range u.Fields() {
			if !f.Exported() {
				continue
			}
			embedded := ""
			if f.Embedded() {
				embedded = "embedded "
			}
			d.add("type %s struct, %s %s%s", o.Name(), f.Name(), embedded, d.text(f.Type()))
		}
	case *types.Interface:
		d.add("type %s interface", o.Name())
		for m := range u.Methods() {
			if m.Exported() {
				d.add("type %s interface, %s%s", o.Name(), m.Name(), d.signature(m.Type()))
			}
		}
		return // its methods are all there is
	default:
		d.add("type %s %s", o.Name(), d.text(u))
	}
	// The methods of the pointer include those of the value, and those of embedded types.
	values := types.NewMethodSet(named)
	for sel := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		m := sel.Obj()
		if !m.Exported() {
			continue
		}
		receiver := "*" + o.Name()
		if values.Lookup(m.Pkg(), m.Name()) != nil {
			receiver = o.Name()
		}
		d.add("method (%s) %s%s", receiver, m.Name(), d.signature(sel.Type()))
	}
}
