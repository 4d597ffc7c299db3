// kafkajs: npm install && node billing.js 127.0.0.1:9092
const { Kafka, logLevel } = require("kafkajs");

async function main() {
  const kafka = new Kafka({
    brokers: [process.argv[2] || "127.0.0.1:9092"],
    logLevel: logLevel.ERROR,
  });
  const consumer = kafka.consumer({ groupId: "billing" });
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  await consumer.connect();
  await consumer.subscribe({ topics: ["orders"] });
  await consumer.run({ autoCommit: false, eachMessage: async () => {} });
  await joined;

  await consumer.commitOffsets([{ topic: "orders", partition: 0, offset: "42" }]);
  const admin = kafka.admin();
  await admin.connect();
  const [orders] = await admin.fetchOffsets({ groupId: "billing", topics: ["orders"] });
  console.log(`orders 0: ${orders.partitions.find((p) => p.partition === 0).offset}`);
  await admin.disconnect();
  await consumer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
