package kernel

import "testing"

func TestEndsQuietly(t *testing.T) {
	for code, want := range map[string]bool{
		"print(1)":                      true,
		"print(1)\n\n# done\n":          true,
		"x = 5":                         true,
		"import os":                     true,
		"print('a', [1, (2)])":          true,
		"1+1":                           false,
		"x":                             false,
		"print(1), (2)":                 false, // a tuple
		"print(1)(2)":                   false,
		"print(1); x":                   false,
		"f(\nprint(1))":                 false, // closes an earlier line's parenthesis
		"f(\nx = 1)":                    false,
		"if x:\n    print(1)":           false,
		"s = '''\nprint(1)'''":          false,
		"f('''\nprint(''')":             false,
		"printer(1)":                    false,
		"x == 5":                        false,
		"x.y = 5":                       false,
		"print(')')":                    false, // in doubt
		"":                              false,
		"# only a comment":              false,
		"lambda: print(1)":              false,
		"await print(1)":                false,
		"print(1) if x else print(2)":   false,
		"from os import path":           true,
		"importlib":                     false,
		"f(a,\n\"\"\"\nimport x\"\"\")": false,
		"x = y = \\\n5":                 false,
		"raise ValueError('boom')":      true,
		"print(\"it's\")":               true,
		"print(1)  # with a comment":    false,
		"[\nprint(1),\nprint(2)\n]":     false,
		"print(f'{x[0]}')":              true,
		"print(1)\\":                    false,
		"café = 5":                      false,
	} {
		if got := endsQuietly(code); got != want {
			t.Errorf("%q: got %t, want %t", code, got, want)
		}
	}
}

func TestEndsQuietlyJS(t *testing.T) {
	for code, want := range map[string]bool{
		"console.log(1)":                       true,
		"f()\nconsole.error([1], {});\n// end": true,
		"import fs from 'fs'\nfs":              true,
		"const m = import('fs')\nm":            true,
		"importer()":                           false,
		"console.log(1); f(2)":                 false,
		"console.log(1), f(2)":                 false,
		"console.log(1) || f(2)":               false,
		"f(\nconsole.log(1))":                  false, // closes an earlier line's
		"consoles.log(1)":                      false,
		"1+1":                                  false,
		"":                                     false,
	} {
		if got := endsQuietlyJS(code); got != want {
			t.Errorf("%q: got %t, want %t", code, got, want)
		}
	}
}
