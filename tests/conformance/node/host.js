// kafkajs against a server: each scenario is one life of one client.
//
// Started as `node host.js HOST:PORT`. It says first which version it holds, then reads commands
// from stdin, {"id": 1, "scenario": "kafkajs/life-cycle", "group": "g"}, runs them side by side and
// writes one line for each, {"id": 1, "ok": true} or {"id": 1, "ok": false, "error": "..."}.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const { AssignerProtocol, Kafka, PartitionAssigners, logLevel } = require('kafkajs');

const [, , bootstrap] = process.argv;
const PATIENCE_MS = 90_000; // before a scenario fails; nothing is expected to take it

const kafka = new Kafka({ clientId: 'conformance', brokers: [bootstrap], logLevel: logLevel.NOTHING });

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function eventually(what, holds) {
  const giveUp = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > giveUp) throw new Error(`never came: ${what}`);
    await sleep(50);
  }
}

async function withAdmin(use) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function createTopic(topic, numPartitions) {
  await withAdmin(async (admin) => {
    await admin.createTopics({ topics: [{ topic, numPartitions }], waitForLeaders: false });
    await eventually(`topic ${topic}`, async () => {
      try {
        const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
        return topics[0].partitions.every(({ leader }) => leader >= 0);
      } catch (failed) {
        return false; // a broker shows it a moment after it said that it is there
      }
    });
  });
  return topic;
}

async function describe(group) {
  const { groups } = await withAdmin((admin) => admin.describeGroups([group]));
  return groups[0];
}

async function committed(groupId) {
  const topics = await withAdmin((admin) => admin.fetchOffsets({ groupId }));
  const found = {};
  for (const { topic, partitions } of topics) {
    for (const { partition, offset } of partitions) {
      if (offset !== '-1') found[`${topic}-${partition}`] = offset;
    }
  }
  return found;
}

/** A consumer at work; `held` is what its last assignment gave it. */
async function join(groupId, topics, options = {}) {
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: 10_000,
    heartbeatInterval: 300,
    rebalanceTimeout: 30_000,
    maxWaitTimeInMs: 200,
    metadataMaxAge: 1000,
    ...options,
  });
  const member = { consumer, held: [], generation: null, memberId: null, joins: 0 };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.held = Object.entries(payload.memberAssignment)
      .flatMap(([topic, ids]) => ids.map((id) => `${topic}-${id}`))
      .sort();
    member.memberId = payload.memberId;
    member.protocol = payload.groupProtocol;
    member.joins += 1;
  });
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  await consumer.run({ autoCommit: false, eachMessage: async () => {} });
  return member;
}

const hold = (count, ...members) =>
  eventually(`each holds ${count}`, () => members.every(({ held }) => held.length === count));

async function lifeCycle(group) {
  const topic = await createTopic(group, 4);
  const one = await join(group, [topic]);
  await hold(4, one);
  const two = await join(group, [topic]);
  await hold(2, one, two);
  assert.equal(new Set([...one.held, ...two.held]).size, 4);
  const described = await describe(group);
  assert.deepEqual(
    [described.state, described.protocol, described.protocolType, described.members.length],
    ['Stable', 'RoundRobinAssigner', 'consumer', 2],
  );
  const mine = Number(one.held[0].slice(topic.length + 1));
  await one.consumer.commitOffsets([{ topic, partition: mine, offset: '42', metadata: 'mine' }]);
  assert.deepEqual(await committed(group), { [`${topic}-${mine}`]: '42' });
  await one.consumer.disconnect(); // says goodbye
  await hold(4, two);
  await two.consumer.disconnect();
  await eventually('empty', async () => (await describe(group)).state === 'Empty');

  const back = await join(group, [topic]);
  await hold(4, back);
  await back.consumer.commitOffsets([{ topic, partition: mine, offset: '43' }]);
  assert.deepEqual(await committed(group), { [`${topic}-${mine}`]: '43' });
  await back.consumer.disconnect();
}

async function heartbeats(group) {
  const topic = await createTopic(group, 2);
  const one = await join(group, [topic], { sessionTimeout: 6000 });
  await hold(2, one);
  const { memberId } = one;
  await sleep(8000);
  assert.equal((await describe(group)).members[0].memberId, memberId);
  assert.equal(one.joins, 1);
  await one.consumer.disconnect();
}

/** An assigner of the user's own: kafkajs sends its user data through the coordinator. */
const allToTheFirst = ({ cluster }) => ({
  name: 'AllToTheFirst',
  version: 1,
  async assign({ members, topics }) {
    const [first, ...others] = members.map(({ memberId }) => memberId).sort();
    const everything = {};
    for (const topic of topics) {
      everything[topic] = cluster.findTopicPartitionMetadata(topic).map((p) => p.partitionId);
    }
    return [first, ...others].map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: 1,
        assignment: memberId === first ? everything : {},
        userData: Buffer.from('by the first'),
      }),
    }));
  },
  protocol: ({ topics }) => ({
    name: 'AllToTheFirst',
    metadata: AssignerProtocol.MemberMetadata.encode({
      version: 1,
      topics,
      userData: Buffer.from('mine'),
    }),
  }),
});

async function ownAssigner(group) {
  const topic = await createTopic(group, 3);
  const assigners = { partitionAssigners: [allToTheFirst, PartitionAssigners.roundRobin] };
  const members = [await join(group, [topic], assigners), await join(group, [topic], assigners)];
  await eventually('one has all, the other nothing', async () => {
    const counts = members.map(({ held }) => held.length).sort();
    return counts[0] === 0 && counts[1] === 3 && (await describe(group)).members.length === 2;
  });
  const described = await describe(group);
  assert.equal(described.protocol, 'AllToTheFirst');
  const subscription = AssignerProtocol.MemberMetadata.decode(described.members[0].memberMetadata);
  assert.equal(subscription.userData.toString(), 'mine');
  await Promise.all(members.map(({ consumer }) => consumer.disconnect()));
}

async function pattern(group) {
  const north = await createTopic(`${group}-north`, 2);
  await createTopic(`${group}-east`, 1);
  const one = await join(group, [new RegExp(`^${group}-.*th$`)]);
  await hold(2, one);
  assert.deepEqual(one.held, [`${north}-0`, `${north}-1`]);
  await one.consumer.disconnect();
}

async function adminGroups(group) {
  const topic = await createTopic(group, 1);
  const one = await join(group, [topic]);
  await hold(1, one);
  const listed = async () =>
    (await withAdmin((admin) => admin.listGroups())).groups.find((g) => g.groupId === group);
  assert.deepEqual(await listed(), { groupId: group, protocolType: 'consumer' });
  await assert.rejects(
    withAdmin((admin) => admin.deleteGroups([group])),
    (failed) => failed.groups[0].error.type === 'NON_EMPTY_GROUP',
  );
  await one.consumer.disconnect();
  await eventually('empty', async () => (await describe(group)).state === 'Empty');
  await withAdmin((admin) => admin.deleteGroups([group]));
  assert.equal(await listed(), undefined);
}

async function adminOffsets(group) {
  const topic = await createTopic(group, 2);
  await withAdmin(async (admin) => {
    await admin.setOffsets({
      groupId: group,
      topic,
      partitions: [
        { partition: 0, offset: '7' },
        { partition: 1, offset: '8' },
      ],
    });
    assert.deepEqual(await committed(group), { [`${topic}-0`]: '7', [`${topic}-1`]: '8' });
    await admin.resetOffsets({ groupId: group, topic, earliest: true });
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic], resolveOffsets: true });
    assert.deepEqual(partitions.map(({ offset }) => offset).sort(), ['0', '0']);
    const ends = await admin.fetchTopicOffsets(topic);
    assert.deepEqual(ends.map(({ low }) => low), ['0', '0']);
  });
}

async function adminTopics(group) {
  const topic = await createTopic(group, 1);
  await withAdmin(async (admin) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    await eventually('three partitions', async () => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      return topics[0].partitions.length === 3;
    });
    assert.equal((await admin.describeCluster()).brokers.length, 1);
    await admin.deleteTopics({ topics: [topic] });
    await eventually('gone', async () => !(await admin.listTopics()).includes(topic));
  });
}

const scenarios = {
  'kafkajs/life-cycle': lifeCycle,
  'kafkajs/heartbeats': heartbeats,
  'kafkajs/own-assigner': ownAssigner,
  'kafkajs/pattern': pattern,
  'kafkajs-admin/groups': adminGroups,
  'kafkajs-admin/offsets': adminOffsets,
  'kafkajs-admin/topics': adminTopics,
};

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

async function obey({ id, scenario, group }) {
  try {
    await scenarios[scenario](group);
    say({ id, ok: true });
  } catch (failed) {
    say({ id, ok: false, error: String(failed.stack) });
  }
}

say({ versions: { kafkajs: require('kafkajs/package.json').version } });
readline
  .createInterface({ input: process.stdin })
  .on('line', (line) => obey(JSON.parse(line)))
  .on('close', () => process.exit(0));
