// How long must a client wait for what it used? Asked of a running daemon in the JSON form, one question per line.
//
//     node decide.mjs SOCKET USER CLIENT_ID TYPE AMOUNT...
//
// Every amount is charged; the answers are printed as they come.
import net from 'node:net';
import readline from 'node:readline';

const [path, user, clientId, type, ...amounts] = process.argv.slice(2);
if (amounts.length === 0) {
  console.error('usage: node decide.mjs SOCKET USER CLIENT_ID TYPE AMOUNT...');
  process.exit(2);
}
const socket = net.createConnection(path);
socket.on('error', (error) => {
  console.error(`no daemon answers on ${path}: ${error.message}`);
  process.exit(1);
});
const answers = readline.createInterface({ input: socket });
amounts.forEach((amount, id) => {
  const question = { v: 1, id, op: 'record', user, client_id: clientId, type, amount: Number(amount) };
  socket.write(JSON.stringify(question) + '\n');
});
let left = amounts.length;
answers.on('line', (line) => {
  const answer = JSON.parse(line);
  if (!answer.ok) {
    console.error(answer.error);
    process.exitCode = 1;
  } else {
    const quota = answer.quota ? `${answer.quota.key} of ${answer.quota.entity}` : 'no limit';
    console.log(`${amounts[answer.id]}: wait ${answer.delay_ms} ms (${quota})`);
  }
  left -= 1;
  if (left === 0) socket.end();
});
