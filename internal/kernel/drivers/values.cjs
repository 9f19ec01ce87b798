// The last expression of a program.

function parses(code) {
  try {
    // Compiled only, not run.
    return Boolean(new vm.Script(`async()=>{${code}\n}`));
  } catch {
    return false;
  }
}

// lastExpression returns the text of the expression at the end of code. It returns
// undefined if code ends with a statement, or with a call whose value is not worth showing. It
// looks for the last position with a complete program before it and an expression after it.
function lastExpression(code) {
  code = code.replace(/^#!/, '//');
  for (;;) {
    code = code.trimEnd();
    const line = code.slice(code.lastIndexOf('\n') + 1).trimStart();
    if (line.startsWith('//')) code = code.slice(0, code.lastIndexOf('\n') + 1);
    else if (code.endsWith(';')) code = code.slice(0, -1);
    else break;
  }
  for (let at = code.length, tries = 0; at > 0 && tries < 100; tries++) {
    at = Math.max(code.lastIndexOf('\n', at - 1), code.lastIndexOf(';', at - 1), 0);
    const before = at ? code.slice(0, at + 1) : '';
    const text = code.slice(before.length).trimStart();
    if (/^(?:$|[{}\])?:.,]|\/\/|function\b|class\b|async\s+function\b)/.test(text)) continue;
    if (!parses(`(${text}\n)`) || !parses(before)) continue;
    return /^[\w$.]+\.write(?:Sync|File|FileSync)?\(/.test(text) ? undefined : text; // a number of bytes is not worth showing
  }
  return undefined;
}

// The forms in which a value is shown.

const MAX_TEXT = 256 << 10;

function isPlain(v) {
  if (v === null || typeof v !== 'object' || util.types.isProxy(v)) return false;
  const proto = Object.getPrototypeOf(v);
  return Array.isArray(v) || proto === Object.prototype || proto === null;
}

// ownForms returns the forms that a value provides itself, or undefined.
function ownForms(value) {
  const own = value?.toMIMEBundle ?? value?.[Symbol.for('Jupyter.display')];
  if (typeof own !== 'function') return undefined;
  const data = {};
  for (const [mime, form] of Object.entries(Reflect.apply(own, value, []) ?? {})) {
    if (mime.endsWith('json')) data[mime] = form;
    else data[mime] = ArrayBuffer.isView(form) ? Buffer.from(form.buffer, form.byteOffset, form.byteLength).toString('base64') : String(form);
  }
  return data;
}

function forms(value, data = ownForms(value)) {
  if (data === undefined) {
    data = {};
    if (isPlain(value)) {
      try {
        const text = JSON.stringify(value);
        if (text.length <= MAX_TEXT) data['application/json'] = JSON.parse(text);
      } catch {
        // it has no JSON form
      }
    }
  }
  data['text/plain'] ??= util.inspect(value);
  if (data['text/plain'].length > MAX_TEXT) data['text/plain'] = data['text/plain'].slice(0, MAX_TEXT) + ' ...';
  return data;
}
