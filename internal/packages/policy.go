package packages

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

// decide returns what the policy says of a name, and the rule.
func (p Policy) decide(lang sandboxmcp.Language, name string) (d Decision, rule string) {
	if rule = match(p.Deny, lang, name, true); rule != "" {
		return Deny, "the packages_deny list has " + sandboxmcp.Quote(rule)
	}
	if rule = match(p.Allow, lang, name, false); rule != "" {
		return Allow, "the packages_allow list has " + sandboxmcp.Quote(rule)
	}
	if p.Default == Deny {
		return Deny, "the setting packages is deny"
	}
	return p.Default, "the setting packages is " + string(p.Default)
}

// match returns the first pattern that matches a name, or "". npm has packages whose names differ only in
// case, which anyCase takes for one.
func match(patterns []string, lang sandboxmcp.Language, name string, anyCase bool) string {
	for _, text := range patterns {
		pattern := strings.TrimSpace(text)
		if anyCase || lang == sandboxmcp.Python {
			pattern, name = strings.ToLower(pattern), strings.ToLower(name)
		}
		if kind, rest, ok := strings.Cut(pattern, ":"); ok {
			if !strings.EqualFold(kind, string(lang)) {
				continue
			}
			pattern = rest
		}
		if lang == sandboxmcp.Python {
			pattern = environment.Normal(pattern)
		}
		// * matches any part of a name, also the slash after a scope.
		flat := strings.NewReplacer("/", "\x00", "[", `\[`, "?", `\?`, `\`, `\\`)
		if ok, err := path.Match(flat.Replace(pattern), strings.ReplaceAll(name, "/", "\x00")); err == nil && ok {
			return text
		}
	}
	return ""
}

// asking applies a policy to the names of one order.
type asking struct {
	policy Policy
	order  Order

	mu      sync.Mutex
	allowed map[string]bool // names that a person has allowed
}

func newAsking(p Policy, o Order) *asking {
	return &asking{policy: p, order: o, allowed: map[string]bool{}}
}

// possible returns nil if the package may be installed, or if a person may still allow it.
func (a *asking) possible(name string) error {
	_, err := a.open(name)
	return err
}

// all returns nil if the packages may be installed. It asks a person once for all that the policy
// leaves to persons.
func (a *asking) all(ctx context.Context, names []string) error {
	var open []string
	for _, name := range names {
		ask, err := a.open(name)
		if err != nil {
			return err
		}
		if ask {
			open = append(open, name)
		}
	}
	if len(open) == 0 {
		return nil
	}
	slices.Sort(open)
	open = slices.Compact(open)
	if err := a.order.Ask(ctx, a.order.Language, open); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range open {
		a.allowed[name] = true
	}
	return nil
}

// open reports whether a person has to be asked for a package. It fails if the policy excludes it.
func (a *asking) open(name string) (bool, error) {
	d, rule := a.policy.decide(a.order.Language, name)
	switch {
	case d == Allow || d == "":
		return false, nil
	case d == Ask && a.order.Ask != nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.allowed[name], nil
	}
	return false, sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s is not allowed: %s", name, rule).
		WithHint("use a package that is allowed, or do without; an operator changes SANDBOXMCP_PACKAGES and its lists").With("package", name)
}

// comesWith says which package to ask for if a name is that of a module of another one; "" if it is
// not known.
func comesWith(lang sandboxmcp.Language, name string) string {
	if p := pynames.Package(name); p != "" && lang == sandboxmcp.Python {
		return "the module " + name + " comes with " + p + ": pass that"
	}
	return ""
}

// resembles returns the well-known package that a name is one edit away from, or "". An edit
// inserts, removes or replaces a letter, or exchanges two neighbors.
func resembles(lang sandboxmcp.Language, name string) string {
	known := wellKnownPython
	if lang == sandboxmcp.Node {
		known = wellKnownNode
	}
	near := ""
	for k := range strings.FieldsSeq(known) {
		if k == name {
			return ""
		}
		if near == "" && len(k) > 3 && oneEdit(name, k) {
			near = k
		}
	}
	return near
}

func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch {
	case len(b) == len(a)+1:
		return a[i:] == b[i+1:]
	case len(a) != len(b) || i == len(a):
		return false
	case a[i+1:] == b[i+1:]:
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// Names that attackers imitate, because many programs use them.
const (
	wellKnownPython = `aiohttp ansible anyio asyncpg attrs babel beautifulsoup4 bitsandbytes black bokeh boto3 botocore build bs4 cachetools celery certifi cffi chardet
charset-normalizer click cloudpickle colorama cryptography cython dash datasets discord discord-py django docker duckdb fastapi flake8 flask fsspec gensim gevent greenlet
grpcio gunicorn h5py httpx huggingface-hub idna imageio ipython jax jinja2 joblib jsonschema jupyter keras langchain lightgbm lxml markdown markupsafe matplotlib mypy networkx
nltk notebook numba numpy openai opencv-python openpyxl orjson packaging pandas paramiko peft pillow pip plotly polars poetry protobuf psutil psycopg2 pyarrow pycryptodome
pydantic pygments pyinstaller pymongo pymysql pyopenssl pytest python-dateutil python-dotenv pytz pyyaml redis regex reportlab requests rich ruff scikit-learn scipy scrapy
seaborn selenium sentencepiece sentry-sdk setuptools six spacy sqlalchemy starlette statsmodels streamlit sympy tabulate tensorflow tokenizers toml torch torchvision tornado
tqdm transformers typer typing-extensions urllib3 uvicorn virtualenv websockets werkzeug wheel xgboost xlsxwriter yt-dlp zstandard`
	wellKnownNode = `@babel/core @types/node ajv angular async autoprefixer axios babel-core bcrypt bluebird body-parser bootstrap chalk cheerio chokidar classnames colors commander
cookie-parser core-js cors cross-env crypto-js d3 date-fns dayjs debug discord.js dotenv ejs electron electron-builder esbuild eslint ethers event-stream express fastify firebase
form-data fs-extra glob got graphql gulp handlebars helmet husky immer inquirer ioredis jest jquery js-yaml jsdom jsonwebtoken koa left-pad less lodash marked minimist mkdirp
mocha moment mongodb mongoose morgan mysql mysql2 nanoid next node-fetch node-ipc nodemailer nodemon npm openai passport playwright postcss prettier prisma prop-types puppeteer
ramda react react-dom react-redux react-router redis redux request rimraf rollup rxjs sass semver sequelize sharp shelljs socket.io stripe styled-components svelte tailwindcss
three ts-node tslib typescript ua-parser-js uglify-js underscore uuid vite vue web3 webpack winston ws yargs zod zustand`
)
