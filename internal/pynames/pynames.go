// Package pynames knows the names that Python programs often use without importing them,
// and the rule that says when a program lacks such an import.
package pynames

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// text is the rule. Its placeholder stands for the table.
//
//go:embed names.py
var text string

// known is the table: a name, the package that has to be installed for it, and the
// statement that binds it. Modules of the standard library have no package.
var known = [][3]string{
	{"base64", "", "import base64"},
	{"collections", "", "import collections"},
	{"csv", "", "import csv"},
	{"functools", "", "import functools"},
	{"hashlib", "", "import hashlib"},
	{"io", "", "import io"},
	{"itertools", "", "import itertools"},
	{"json", "", "import json"},
	{"math", "", "import math"},
	{"os", "", "import os"},
	{"pathlib", "", "import pathlib"},
	{"random", "", "import random"},
	{"re", "", "import re"},
	{"sys", "", "import sys"},
	{"time", "", "import time"},
	{"typing", "", "import typing"},
	{"Path", "", "from pathlib import Path"},
	{"timedelta", "", "from datetime import timedelta"},
	{"datetime", "", "from datetime import datetime"}, // or the module; the rule decides by its use
	{"requests", "requests", "import requests"},
	{"np", "numpy", "import numpy as np"},
	{"numpy", "numpy", "import numpy"},
	{"pd", "pandas", "import pandas as pd"},
	{"pandas", "pandas", "import pandas"},
	{"plt", "matplotlib", "import matplotlib.pyplot as plt"},
	{"matplotlib", "matplotlib", "import matplotlib"},
	{"BeautifulSoup", "bs4", "from bs4 import BeautifulSoup"},
	{"bs4", "bs4", "import bs4"},
}

// Rule returns the rule as Python code, with the table in it. It defines KNOWN, nodes, kind
// and the class Names.
func Rule() string {
	var rows []string
	for _, k := range known {
		rows = append(rows, strconv.Quote(k[0])+": ("+strconv.Quote(k[1])+", "+strconv.Quote(k[2])+")")
	}
	return strings.Replace(text, `"@known@"`, "{"+strings.Join(rows, ", ")+"}", 1)
}

// Added returns the words that a driver says of a statement that it has carried out for a program.
func Added(statement string) string { return "added " + statement }

// IsAdded reports whether words are those of [Added] for a statement of the table. A program can
// forge what a driver says.
func IsAdded(words string) bool {
	return words == Added("import datetime") || slices.ContainsFunc(known, func(k [3]string) bool { return words == Added(k[2]) })
}

// Set returns the known names as a Python set.
func Set() string {
	var names []string
	for _, k := range known {
		names = append(names, strconv.Quote(k[0]))
	}
	return "{" + strings.Join(names, ", ") + "}"
}
