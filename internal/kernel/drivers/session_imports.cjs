// Replaces the parts of a cell's text that the inspector cannot evaluate.

// adapt returns the text to evaluate, and whether it is known to parse.
function adapt(code) {
  if (code.startsWith('#!')) code = '//' + code.slice(2);
  const whole = parses(code);
  if (!/\bimport\b/.test(code)) return { code, parses: whole };
  const text = replaceImports(code, !whole);
  return whole || parses(text) ? { code: text, parses: true } : { code, parses: false };
}

const STATIC = /^import(?:\s*(['"])([^'"\n]+)\1|\s*([\w$*{][\w$*{},\s'"-]*?)\s*\bfrom\s*(['"])([^'"\n]+)\4)(?:\s*\b(?:with|assert)\s*(\{[^}]*\}))?[ \t]*;?/;

// replaceImports renames import() and import.meta and, if statements is set, rewrites
// import statements. Line numbers do not change.
function replaceImports(code, statements) {
  let out = '';
  let from = 0;
  for (const at of importWords(code)) {
    if (at < from) continue;
    const after = code.slice(at + 6).replace(/^(\s|\/\*[^]*?\*\/|\/\/.*)+/, '');
    const m = statements && STATIC.exec(code.slice(at));
    if (after[0] === '(' || after[0] === '.') {
      out += code.slice(from, at) + '$mport';
      from = at + 6;
    } else if (m) {
      const put = dynamic(m);
      out += code.slice(from, at) + put + '\n'.repeat(m[0].split('\n').length - put.split('\n').length);
      from = at + m[0].length;
    }
  }
  return out + code.slice(from);
}

// dynamic returns an import statement written with import().
function dynamic(m) {
  const call = `await $mport(${JSON.stringify(m[2] ?? m[5])}${m[6] ? `, {with: ${m[6]}}` : ''})`;
  if (m[2] !== undefined) return call + ';';
  const named = /\{([^}]*)\}/.exec(m[3]);
  const [first, second] = m[3].replace(/\{[^}]*\}/, '').split(',').map((w) => w.trim()).filter(Boolean);
  const all = [first, second].find((w) => w?.startsWith('*'))?.replace(/^\*\s*as\s+/, '');
  const names = named ? named[1].split(',').map((w) => w.trim().replace(/\s+as\s+/, ': ')).filter(Boolean) : [];
  if (first && !first.startsWith('*')) names.unshift(`default: ${first}`);
  if (!all) return `const {${names.join(', ')}} = ${call};`;
  return `const ${all} = ${call}${names.length ? `, {${names.join(', ')}} = ${all}` : ''};`;
}

// importWords returns the positions of the keyword "import" in code: not in strings,
// templates, comments or regular expressions, and not as a property name.
function importWords(code) {
  const found = [];
  const braces = []; // for each open template: the brace depth in its ${}
  let before = ''; // the last token
  for (let i = 0; i < code.length;) {
    const rest = code.slice(i, i + 2);
    let m;
    const take = (re) => {
      re.lastIndex = i;
      m = re.exec(code);
      if (m) i = re.lastIndex;
      return m;
    };
    if (take(/\s+|\/\/.*|\/\*[^]*?(\*\/|$)/y)) continue;
    if (rest[0] === '`' || (rest[0] === '}' && braces[braces.length - 1] === 0)) {
      if (rest[0] === '}') braces.pop();
      i++;
      if (take(/(?:[^`\\$]|\\[^]|\$(?!\{))*(`|\$\{|$)/y)[1] === '${') braces.push(0);
      before = '`';
      continue;
    }
    if (take(/(['"])(?:(?!\1)[^\\\n]|\\[^])*(\1|$|\n)/y)) {
      before = '"';
      continue;
    }
    if (rest[0] === '/' && !/[\w$)\]}`"]$|^$/.test(before.replace(/^(return|typeof|case|in|of|void|delete|throw|new|do|else|instanceof|yield|await)$/, '(') || '(')) {
      if (take(/\/(?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/\w*/y)) {
        before = '"';
        continue;
      }
    }
    if (take(/[\w$\u0080-\uffff]+/y)) {
      if (m[0] === 'import' && (before !== '.' || /\.\.\.\s*$/.test(code.slice(0, m.index)))) found.push(m.index);
      before = m[0];
      continue;
    }
    if (braces.length) braces[braces.length - 1] += rest[0] === '{' ? 1 : rest[0] === '}' ? -1 : 0;
    before = rest[0];
    i++;
  }
  return found;
}
