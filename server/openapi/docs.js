// Shows openapi.json, and sends requests to the server that it came from. Text is only ever set as text: nothing of the document or of an
// answer becomes markup.
'use strict'

const storedKey = 'ragate-key' // in the browser's session storage: gone with the tab
let api

// el makes an element; properties are set on it, strings among the children become text.
function el(tag, properties, ...children) {
  const e = Object.assign(document.createElement(tag), properties)
  e.append(...children.flat(9).filter(c => c != null))
  return e
}

const byId = id => document.getElementById(id)

// resolve follows $ref; members beside it, such as a description, win.
function resolve(node) {
  while (node && node.$ref) {
    const { $ref, ...beside } = node
    const target = $ref.slice(2).split('/').reduce((at, step) => at[step.replace(/~1/g, '/').replace(/~0/g, '~')], api)
    node = { ...target, ...beside }
  }
  return node
}

// Descriptions use a little Markdown: paragraphs, headings, lists, tables, `code` and **bold**.
function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map(part =>
    part.startsWith('`') ? el('code', {}, part.slice(1, -1)) : part.startsWith('**') ? el('strong', {}, part.slice(2, -2)) : part)
}

function prose(text) {
  return (text || '').trim().split(/\n\s*\n/).map(block => {
    const lines = block.split('\n')
    if (block.startsWith('#')) return el('h3', {}, inline(block.replace(/^#+\s*/, '')))
    if (block.startsWith('- ')) return el('ul', {}, block.split(/^- /m).slice(1).map(item => el('li', {}, inline(item.trim()))))
    if (block.startsWith('|')) {
      const cells = (line, tag) => el('tr', {}, line.trim().slice(1, -1).split('|').map(c => el(tag, {}, inline(c.trim()))))
      return el('table', {}, cells(lines[0], 'th'), lines.slice(2).map(l => cells(l, 'td')))
    }
    return el('p', {}, inline(block))
  })
}

// typeOf says in a few words what a schema allows.
function typeOf(schema) {
  const s = resolve(schema)
  if ('const' in s) return JSON.stringify(s.const)
  if (s.enum) return s.enum.map(v => JSON.stringify(v)).join(' | ')
  const choices = s.oneOf || s.anyOf
  if (choices) return choices.map(typeOf).join(' or ')
  const types = [].concat(s.type || 'any').map(t => t === 'array' ? 'list of ' + (s.items ? typeOf(s.items) : 'any') : t)
  const bounds = [['minimum', '≥ '], ['maximum', '≤ '], ['minItems', 'items ≥ '], ['maxItems', 'items ≤ ']].filter(([k]) => k in s).map(([k, sign]) => sign + s[k])
  return types.join(' | ') + (bounds.length ? ' (' + bounds.join(', ') + ')' : '')
}

// inner finds the schemas whose members a reader wants to see: those of objects, of lists' items and of alternatives.
function inner(schema) {
  const s = resolve(schema)
  if (s.properties) return [s]
  if (s.items) return inner(s.items)
  return (s.oneOf || s.anyOf || []).flatMap(inner)
}

function memberRows(schema, depth) {
  return inner(schema).flatMap(s => Object.entries(s.properties).flatMap(([name, member]) => {
    const m = resolve(member)
    const required = (s.required || []).includes(name)
    const description = (m.description || '') + ('default' in m ? ` Default: ${JSON.stringify(m.default)}.` : '')
    return [
      el('tr', {}, el('td', { className: `depth-${Math.min(depth, 4)}` }, el('span', { className: required ? 'name required' : 'name' }, name)),
        el('td', { className: 'type' }, typeOf(m)), el('td', {}, prose(description))),
      ...(depth < 4 ? memberRows(m, depth + 1) : []),
    ]
  }))
}

function schemaTable(schema) {
  const rows = memberRows(schema, 0)
  return rows.length ? el('table', {}, el('tr', {}, ['Field', 'Type', ''].map(h => el('th', {}, h))), rows) : el('p', { className: 'type' }, typeOf(schema))
}

const pretty = value => JSON.stringify(value, null, 2)
const examplesOf = media => Object.entries((media && media.examples) || {}).map(([name, e]) => ({ name: resolve(e).summary || name, value: resolve(e).value }))
const base = () => new URL(api.servers[0].url, new URL('openapi.json', document.baseURI)).href.replace(/\/$/, '')
const quoted = text => "'" + text.replace(/'/g, `'\\''`) + "'"
const takesKey = operation => ((operation.security || api.security) || []).length > 0

function curl(method, path, operation, body) {
  const parts = ['curl -s ' + quoted(base() + path)]
  if (method !== 'get') parts.push('-X ' + method.toUpperCase())
  if (takesKey(operation)) parts.push('-H "Authorization: Bearer $RAGATE_API_KEY"')
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", '-d ' + quoted(body))
  return parts.join(' \\\n  ')
}

// tryIt is a form that sends the operation's request, and its curl command beside.
function tryIt(path, method, operation) {
  const media = operation.requestBody && operation.requestBody.content['application/json']
  const examples = examplesOf(media)
  const inPath = (operation.parameters || []).map(resolve).filter(p => p.in === 'path').map(p => {
    const input = el('input', { value: p.example || '', ariaLabel: p.name })
    return { name: p.name, input }
  })
  const body = media && el('textarea', { spellcheck: false, ariaLabel: 'Body', value: examples.length ? pretty(examples[0].value) : '{}' })
  const choice = examples.length > 1 && el('select', { ariaLabel: 'Example' }, examples.map((e, i) => el('option', { value: i }, e.name)))
  const command = el('pre')
  const answer = el('div', { role: 'status' })
  const filled = () => inPath.reduce((p, { name, input }) => p.replace(`{${name}}`, encodeURIComponent(input.value)), path)
  const compact = () => { try { return JSON.stringify(JSON.parse(body.value)) } catch { return body.value } }
  const update = () => {
    if (body) body.rows = Math.min(24, body.value.split('\n').length + 1)
    command.textContent = curl(method, filled(), operation, body ? compact() : undefined)
  }
  if (choice) choice.onchange = () => { body.value = pretty(examples[choice.value].value); update() }
  for (const { input } of inPath) input.oninput = update
  if (body) body.oninput = update
  update()

  async function send() {
    answer.replaceChildren('…')
    const begun = performance.now()
    try {
      const response = await fetch(base() + filled(), { method: method.toUpperCase(), headers: headers(body), body: body ? body.value : undefined })
      const text = await response.text()
      const took = (performance.now() - begun).toFixed(1)
      let shown = text
      try { shown = pretty(JSON.parse(text)) } catch { /* not JSON: as it is */ }
      if (shown.length > 20000) shown = shown.slice(0, 20000) + `\n… ${shown.length - 20000} characters more`
      const told = ['x-request-id', 'server-timing', 'x-ragate-truncated', 'retry-after'].filter(h => response.headers.has(h)).map(h => `${h}: ${response.headers.get(h)}`)
      answer.replaceChildren(el('p', { className: response.ok ? '' : 'failed' }, `${response.status} in ${took} ms`), el('pre', {}, [...told, '', shown].join('\n')))
    } catch (error) {
      answer.replaceChildren(el('p', { className: 'failed' }, String(error)))
    }
  }
  return el('details', {}, el('summary', {}, 'Try it'),
    inPath.map(p => el('label', { className: 'row' }, p.name, p.input)),
    choice && el('div', { className: 'row' }, 'Example', choice),
    body,
    el('div', { className: 'row' }, el('button', { type: 'button', onclick: send }, 'Send')),
    answer,
    el('h4', {}, 'As a command'), command)
}

function headers(withBody) {
  const key = sessionStorage.getItem(storedKey)
  return { ...(withBody ? { 'Content-Type': 'application/json' } : {}), ...(key ? { Authorization: 'Bearer ' + key } : {}) }
}

function responseRows(operation) {
  return Object.entries(operation.responses).sort(([a], [b]) => a - b).map(([status, r]) => {
    const response = resolve(r)
    const media = Object.entries(response.content || {})
    const names = Object.keys(response.headers || {}).filter(n => n !== 'X-Request-Id')
    return el('tr', {}, el('td', { className: 'name' }, status), el('td', {}, prose(response.description),
      names.length ? el('p', { className: 'dim' }, 'Headers: ' + names.join(', ')) : null,
      media.map(([type, m]) => el('details', {}, el('summary', {}, type),
        schemaTable(m.schema), examplesOf(m).map(e => el('pre', {}, pretty(e.value)))))))
  })
}

function operationSection(path, method, operation) {
  const media = operation.requestBody && operation.requestBody.content['application/json']
  const parameters = (operation.parameters || []).map(resolve)
  return el('section', { className: 'operation', id: operation.operationId },
    el('h3', {}, el('span', { className: 'method ' + method }, method), path, takesKey(operation) || !api.security.length ? null : el('span', { className: 'open' }, 'no key')),
    el('p', {}, el('strong', {}, operation.summary)), prose(operation.description),
    parameters.length ? [el('h4', {}, 'Parameters'), el('table', {}, parameters.map(p => el('tr', {},
      el('td', {}, el('span', { className: p.required ? 'name required' : 'name' }, p.name)), el('td', { className: 'type' }, p.in), el('td', {}, prose(p.description)))))] : null,
    media ? [el('h4', {}, 'Body'), schemaTable(media.schema)] : null,
    tryIt(path, method, operation),
    el('h4', {}, 'Answers'), el('table', {}, responseRows(operation)))
}

function show() {
  byId('version').textContent = api.info.version
  const operations = Object.entries(api.paths).flatMap(([path, item]) => Object.entries(item).map(([method, operation]) => ({ path, method, operation })))
  const main = [el('h1', {}, api.info.title), el('p', {}, el('strong', {}, api.info.summary)), prose(api.info.description)]
  const nav = []
  for (const tag of api.tags) {
    const here = operations.filter(o => o.operation.tags.includes(tag.name))
    nav.push(el('div', {}, el('h2', {}, tag.name), here.map(o =>
      el('a', { href: '#' + o.operation.operationId, title: o.operation.summary }, el('span', { className: 'method ' + o.method }, o.method), o.path))))
    main.push(el('div', {}, el('h2', {}, tag.name), prose(tag.description), here.map(o => operationSection(o.path, o.method, o.operation))))
  }
  byId('nav').replaceChildren(...nav)
  byId('main').replaceChildren(...main.flat(9))
  byId('key-form').hidden = !api.security.length
  filter()
  if (location.hash) document.querySelector('#' + CSS.escape(location.hash.slice(1)))?.scrollIntoView()
}

// filter hides what does not have the words of the search box.
function filter() {
  const words = byId('filter').value.toLowerCase().split(/\s+/).filter(Boolean)
  const fits = text => words.every(w => text.toLowerCase().includes(w))
  for (const a of byId('nav').querySelectorAll('a')) a.hidden = !fits(a.textContent + ' ' + a.title)
  for (const s of document.querySelectorAll('section.operation')) s.hidden = !fits(s.querySelector('h3').textContent + ' ' + s.querySelector('strong').textContent)
}

async function load() {
  const notice = text => byId('main').replaceChildren(el('p', { id: 'notice', role: 'status' }, text))
  try {
    const response = await fetch('openapi.json', { headers: headers(false) })
    if (response.status === 401) {
      notice(sessionStorage.getItem(storedKey) ? 'The server refused this key: enter another above.' : 'This server asks for a key: enter one above. It is kept for this tab only.')
      byId('key').focus()
      return
    }
    if (!response.ok) throw new Error(`openapi.json: ${response.status}`)
    api = await response.json()
    show()
  } catch (error) {
    notice('The description could not be shown: ' + error)
  }
}

byId('filter').oninput = filter
byId('key-form').onsubmit = event => {
  event.preventDefault()
  sessionStorage.setItem(storedKey, byId('key').value.trim())
  byId('key').value = ''
  load()
}
load()
