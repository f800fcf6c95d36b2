// SPDX-License-Identifier: Apache-2.0
// What a person does on the page, in a real browser. page_test.py starts the control plane and names one
// of STORIES; the service's address and token come by the environment, and the folder with playwright-core
// and axe-core too. Whatever the story: nothing is loaded from elsewhere, no policy is violated, nothing is
// written to the console as an error.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';

const { STARLING_URL: base, STARLING_TOKEN: token, STARLING_WEB_TOOLS: tools, STARLING_BROWSER: program } = process.env;
const { chromium } = createRequire(`${tools}/package.json`)('playwright-core');
const axe = fs.readFileSync(`${tools}/node_modules/axe-core/axe.min.js`, 'utf8');
const PATIENCE = 40_000;

const namespace = process.env.STARLING_NAMESPACE ?? 'default';
const jobs = `/v1/namespaces/${namespace}/jobs`;

async function rest(method, path, body) {
  const answer = await fetch(base + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, ...(body ? { 'Content-Type': 'application/json' } : {}) },
    body: body && JSON.stringify(body),
  });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

async function until(holds, what, ms = PATIENCE) {
  const deadline = Date.now() + ms;
  for (;;) {
    const value = await holds();
    if (value) return value;
    assert.ok(Date.now() < deadline, `not within ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

// A page of which everything that must not happen is kept.
async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.wrong = [];
  page.on('pageerror', (error) => page.wrong.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // What the service refuses (a wrong job, an unknown token), and that it is away, the browser tells
    // as a failed load.
    const refused = message.text().startsWith('Failed to load resource');
    if (message.type() === 'error' && !refused) page.wrong.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${base}/`)) page.wrong.push(`loads ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return page;
}

const open = (page, path) => page.goto(`${base}${path}#token=${token}`);

// Nothing is found by axe, in neither colours, and nothing is wider than the window.
async function accessible(page, where) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const found = await page.evaluate(`${axe}; axe.run(document).then((result) => result.violations.map(
      ({ id, help, nodes }) => id + ': ' + help + ' ' + nodes.map((node) => node.html.slice(0, 160) + ' ' + node.any.map((one) => one.message)).join(' | ')))`);
    assert.deepEqual(found, [], `${where} in ${colorScheme}`);
  }
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${where}: ${wide} pixels of ${window}`);
}

const digit = (page, label) => page.locator('.digits > div', { hasText: label }).locator('dd').first().innerText();
const picture = (page) =>
  page
    .locator('.panel', { hasText: 'Loss' })
    .locator('canvas')
    .first()
    .evaluate((canvas) => canvas.toDataURL());
const badge = (page, state) => page.locator('.title .badge', { hasText: state }).waitFor();

async function submit(page) {
  await page.getByRole('link', { name: 'Submit the first job' }).click();
  await page.getByText('This job can be submitted.').waitFor();
  const file = page.getByLabel('Job file');
  const text = await file.inputValue();
  await file.fill(text.replace('epochs: 20', 'epochs: -1'));
  await page.locator('.wrong', { hasText: 'spec.stop.epochs' }).waitFor();
  assert.ok(await page.getByRole('button', { name: 'Submit' }).isDisabled(), 'what is wrong cannot be submitted');
  await accessible(page, 'a wrong job');
  await file.fill(text.replace('epochs: 20', 'epochs: 2000'));
  await page.getByText('This job can be submitted.').waitFor();
  await page.getByRole('button', { name: 'Submit' }).click();
  await page.getByRole('heading', { name: 'first', exact: true }).waitFor();
}

async function watchCurve(page) {
  await badge(page, 'Running');
  await page.locator('.panel', { hasText: 'Loss' }).waitFor();
  await until(async () => Number((await digit(page, 'Step')).split('/')[0].replace(',', '')) > 30, 'steps are taken');
  const [step, before] = [await digit(page, 'Step'), await picture(page)];
  await until(async () => (await digit(page, 'Step')) !== step && (await picture(page)) !== before, 'the curve moves');
}

async function killWorker(page) {
  const { items } = await rest('GET', `${jobs}/first/pods`);
  const worker = items.find((pod) => pod.metadata.name === 'first-worker-1');
  process.kill(Number(worker.metadata.annotations['starling.dev/pid']), 'SIGKILL');
  const incident = page.locator('.incident', { hasText: 'first-worker-1' });
  await incident.waitFor();
  assert.match(await incident.innerText(), /signal 9/);
  await incident.getByText('Last lines of its log').click();
  await incident.locator('pre', { hasText: 'steps begin' }).waitFor();
  await page.locator('.findings', { hasText: '1 incident cost' }).waitFor();
}

async function lookAround(page) {
  await page.getByRole('tab', { name: /Incidents/ }).focus();
  for (const [tab, text] of [
    ['Pods', 'first-worker-0'],
    ['Logs', 'steps begin'],
    ['Table', 'samples/s'],
    ['Events', 'Pods created'],
    ['YAML', 'mlp:'],
  ]) {
    await page.keyboard.press('ArrowRight');
    await page.getByRole('tab', { name: tab, selected: true }).waitFor();
    await page.getByRole('tabpanel').getByText(text).first().waitFor();
    await accessible(page, `the tab ${tab}`);
  }
  await page.keyboard.press('ArrowRight');
}

async function scale(page) {
  await page.getByRole('button', { name: 'Scale…' }).click();
  await accessible(page, 'the dialog that scales');
  await page.getByLabel('Workers', { exact: true }).fill('3');
  await page.getByRole('button', { name: 'Scale', exact: true }).click();
  await until(async () => (await digit(page, 'Workers')) === '3 / 3', 'three workers train');
}

async function checkpoint(page) {
  await page.getByRole('button', { name: 'Checkpoint' }).click();
  await page.getByRole('status').getByText('has a checkpoint of step').waitFor();
}

async function suspendAndResume(page) {
  await page.getByRole('button', { name: 'Suspend' }).click();
  await badge(page, 'Suspended');
  await page.getByRole('button', { name: 'Resume' }).click();
  await badge(page, 'Running');
}

async function deleteJob(page) {
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('dialog').waitFor();
  await accessible(page, 'the dialog that deletes');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  assert.equal((await rest('GET', `${jobs}/first`)).metadata.name, 'first', 'Escape deletes nothing');
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('button', { name: 'Keep it' }).click();
  const focused = () => page.evaluate(() => document.activeElement?.textContent);
  await until(async () => (await focused()) === 'Delete…', 'the keyboard is where it was');
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('button', { name: 'Delete first' }).click();
  await page.getByText('Nothing trains yet').waitFor();
  await until(() => page.evaluate(() => document.activeElement?.tagName === 'MAIN'), 'the list has the keyboard');
}

// Where the service has a history, what was deleted is found there, its curves and incidents too.
async function remember(page) {
  const past = page.getByRole('link', { name: 'History' });
  if ((await past.count()) === 0) return;
  await past.click();
  const job = page.getByRole('link', { name: 'first' });
  await until(async () => {
    const found = await job.waitFor({ timeout: 1000 }).then(
      () => true,
      () => false,
    );
    if (!found) await page.reload();
    return found;
  }, 'the history has it');
  await job.click();
  await badge(page, 'Deleted');
  await page.getByText('This job was deleted on').waitFor();
  await page.locator('.panel canvas').first().waitFor();
  await page.locator('.incident', { hasText: 'first-worker-1' }).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Suspend' }).count(), 0, 'nothing can be done to it');
  await accessible(page, 'a past job');
}

// Kills the control plane and brings another to its place and port.
async function bounce(meanwhile) {
  const { STARLING_HOME: home, STARLING_CONTROLLER: controller } = process.env;
  const { pid } = JSON.parse(fs.readFileSync(`${home}/controller.json`, 'utf8'));
  process.kill(pid, 'SIGKILL');
  await meanwhile();
  const log = fs.openSync(`${home}/controller.log`, 'a');
  spawn(controller, ['--home', home, '--rest-port', new URL(base).port], {
    detached: true,
    stdio: ['ignore', log, log],
  }).unref();
  await until(
    () =>
      fetch(`${base}/v1/version`).then(
        (answer) => answer.ok,
        () => false,
      ),
    'the control plane is up again',
  );
}

const STORIES = {
  async life(browser) {
    const page = await openPage(browser);
    await open(page, '/');
    await page.getByText('Nothing trains yet').waitFor();
    assert.equal(page.url(), `${base}/`, 'the token does not stay in the address');
    await accessible(page, 'no jobs');
    await submit(page);
    await watchCurve(page);
    await killWorker(page);
    await accessible(page, 'a job');
    await lookAround(page);
    await scale(page);
    await checkpoint(page);
    await suspendAndResume(page);
    await deleteJob(page);
    await remember(page);
    return page;
  },

  // Names, annotations and logs of strangers are text, whatever they say.
  async strangers(browser) {
    const evil = '<img src=x onerror="hacked=1"><script>hacked=1</script>';
    const container = {
      name: 'trainer',
      image: 'not/used:1',
      command: ['sh', '-c', `printf '%s\\n' '${evil}' >&2; sleep 1; exit 3`],
    };
    await rest('POST', jobs, {
      apiVersion: 'starling.dev/v1alpha1',
      kind: 'TrainingJob',
      metadata: { name: 'evil', annotations: { note: evil } },
      spec: {
        workload: { container: { framework: 'PyTorch' } },
        runPolicy: { backoffLimit: 0 },
        replicaSpecs: {
          worker: { replicas: 1, restartPolicy: 'Never', template: { spec: { containers: [container] } } },
        },
      },
    });
    const page = await openPage(browser);
    await open(page, '/?job=default/evil&tab=logs');
    await page.locator('.line', { hasText: evil }).waitFor();
    await badge(page, 'Failed');
    await page.getByRole('tab', { name: 'YAML' }).click();
    await page.getByLabel('with status and metadata').check();
    await page.locator('.yaml', { hasText: 'onerror=' }).waitFor();
    await page.getByRole('tab', { name: /Incidents/ }).click();
    await page.getByText('Last lines of its log').first().click();
    await page.locator('.incident pre', { hasText: evil }).first().waitFor();
    await accessible(page, 'a job that failed');
    await open(page, `/?job=default/${encodeURIComponent(evil)}`);
    await page.getByRole('alert').waitFor();
    await open(page, `/?find=${encodeURIComponent(evil)}`);
    await page.getByText('No job matches').waitFor();
    assert.equal(await page.evaluate('typeof hacked'), 'undefined');
    await rest('DELETE', `${jobs}/evil`);
    return page;
  },

  // What every story watches for is seen when it is there.
  async control(browser) {
    const page = await openPage(browser);
    await open(page, '/');
    await page.getByText('Nothing trains yet').waitFor();
    await page.evaluate(() => {
      const bad = '<img src="http://127.0.0.1:9/x.png" alt=""><p style="color: red">x</p><script>hacked = 1</script>';
      document.body.append(document.createRange().createContextualFragment(bad));
    });
    await until(() => page.wrong.filter((one) => one.includes('policy violated')).length >= 3, 'three violations');
    assert.equal(await page.evaluate('typeof hacked'), 'undefined');
    await page.evaluate(() => document.querySelector('main').append(document.createElement('button')));
    await assert.rejects(accessible(page, 'a button without a name'), /button-name/);
    await page.reload();
    await page.getByText('Nothing trains yet').waitFor();
    await page.evaluate(() => (document.querySelector('main').style.minWidth = '3000px'));
    await assert.rejects(accessible(page, 'a wide page'), /3\d\d\d pixels of 1280/);
    page.wrong = [];
    return page;
  },

  // Who has no token sees nothing; a connection that breaks is told, and comes back by itself.
  async connection(browser) {
    const page = await openPage(browser, { viewport: { width: 390, height: 844 } });
    await page.goto(`${base}/`);
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await accessible(page, 'signing in on a phone');
    await page.getByLabel('Token').fill('0'.repeat(64));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('does not know this token').waitFor();
    await page.getByLabel('Token').fill(token);
    await page.keyboard.press('Enter');
    await page.getByText('Nothing trains yet').waitFor();
    await bounce(async () => {
      await page.getByText('The connection broke').waitFor();
      await accessible(page, 'a broken connection');
    });
    await rest('POST', jobs, sleeper('phone'));
    await page.getByRole('link', { name: 'phone' }).waitFor();
    await accessible(page, 'the list on a phone');
    await page.getByRole('link', { name: 'phone' }).click();
    await badge(page, 'Running');
    await page.locator('.panel canvas').first().waitFor();
    await accessible(page, 'a job on a phone');
    await page.goBack();
    await page.getByRole('heading', { name: 'Jobs' }).waitFor();
    await rest('DELETE', `${jobs}/phone`);
    await page.getByText('Nothing trains yet').waitFor();
    await page.getByRole('button', { name: /Sign out/ }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    return page;
  },

  // In a cluster, as somebody who may see and change the jobs of one namespace (tests/install/rest_browser_test.py).
  async cluster(browser) {
    const page = await openPage(browser, { ignoreHTTPSErrors: true });
    await page.goto(`${base}/`);
    await page.getByLabel('Token').fill(token);
    await page.keyboard.press('Enter');
    await page.getByText('This is not allowed').waitFor();
    await accessible(page, 'the jobs of all namespaces, which are not to be seen');
    await page.getByLabel('Namespace').fill(namespace);
    await page.keyboard.press('Enter');
    await page.getByText('Nothing trains yet').waitFor();
    await page.getByRole('link', { name: 'New job' }).click();
    await page.getByText('This job can be submitted').waitFor();
    await page.getByRole('button', { name: 'Submit' }).click();
    await page.getByRole('heading', { name: 'first', exact: true }).waitFor();
    await page.getByRole('link', { name: 'Starling' }).click();
    await page.getByRole('link', { name: 'first', exact: true }).waitFor();
    return page;
  },

  // The same where nodes run what is submitted (tests/kube/page_test.py).
  async trains(browser) {
    const page = await STORIES.cluster(browser);
    await page.getByRole('link', { name: 'first', exact: true }).click();
    await watchCurve(page);
    if (process.env.STARLING_PICTURE) await page.screenshot({ path: process.env.STARLING_PICTURE });
    return page;
  },
};

// No test: the pictures of docs/, made anew by `tests/e2e/page_test.py --pictures`.
async function pictures(browser) {
  const source = (name) => ({
    csv: { uri: `${process.cwd()}/examples/data/${name}.csv`, labelColumn: 'label', shape: [1, 8, 8] },
  });
  const dataset = { train: source('digits-train'), validation: source('digits-test'), globalBatchSize: 128 };
  const job = (name, changes) => ({ ...sleeper(name), spec: { ...sleeper(name).spec, dataset, ...changes } });
  const large = { workload: { classification: { model: { mlp: { hidden: [1024, 512] } } } } };
  const worker = (replicas) => ({ replicaSpecs: { worker: { replicas, maxReplicas: 8 } } });
  const missing = { train: source('nowhere'), globalBatchSize: 64 };
  await rest('POST', jobs, job('lenet-trial', { dataset: missing }));
  await rest('POST', jobs, job('baseline', { stop: { epochs: 20 } }));
  await rest('POST', jobs, job('warm-up', {}));
  const optimizer = { sgd: { learningRate: 0.005, momentum: 0.9 } };
  await rest('POST', jobs, job('digits', { ...large, ...worker(3), optimizer, stop: { epochs: 400 }, experiment: {} }));
  const page = await openPage(browser, { viewport: { width: 1180, height: 1010 } });
  await open(page, '/?job=default/digits');
  await badge(page, 'Running');
  const wait = (seconds) => page.waitForTimeout(1000 * seconds);
  const kill = async (name) => {
    const { items } = await rest('GET', `${jobs}/digits/pods`);
    const pod = items.find((one) => one.metadata.name === name);
    process.kill(Number(pod.metadata.annotations['starling.dev/pid']), 'SIGKILL');
  };
  await wait(9);
  await rest('POST', `${jobs}/warm-up:suspend`);
  await wait(5);
  await kill('digits-worker-1');
  await wait(9);
  await rest('PUT', `${jobs}/digits/scale`, { role: 'worker', replicas: 4 });
  await wait(9);
  await kill('digits-worker-2');
  await wait(8);
  await page.screenshot({ path: 'docs/page-light.png' });
  await page.setViewportSize({ width: 390, height: 844 });
  await wait(1);
  await page.screenshot({ path: 'docs/page-phone.png' });
  await page.setViewportSize({ width: 1180, height: 420 });
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.getByRole('link', { name: 'Jobs' }).click();
  await page.getByRole('link', { name: 'lenet-trial' }).waitFor();
  await wait(1);
  await page.screenshot({ path: 'docs/page-dark.png' });
  return page;
}
STORIES.pictures = pictures;

function sleeper(name) {
  return {
    apiVersion: 'starling.dev/v1alpha1',
    kind: 'TrainingJob',
    metadata: { name },
    spec: {
      workload: { classification: { model: { mlp: { hidden: [16] } } } },
      dataset: { train: { synthetic: {} }, globalBatchSize: 64 },
      stop: { epochs: 2000 },
      replicaSpecs: { worker: { replicas: 1 } },
      experiment: { stepDelay: '20ms' },
    },
  };
}

const story = STORIES[process.argv[2]];
assert.ok(story, `name one of ${Object.keys(STORIES)}`);
// A root's browser has no sandbox of its own; it opens nothing but the service of this machine.
const browser = await chromium.launch({
  executablePath: program,
  args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});
try {
  const page = await story(browser);
  assert.deepEqual(page.wrong, []);
} finally {
  await browser.close();
}
